//! Traces in real files: what a user may hand to crashproof, and disks that are full.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::header;
use crashproof_trace::*;
use tempfile::TempDir;

fn open_error(path: &Path) -> String {
    TraceReader::open(path).err().expect("an error").to_string()
}

/// Recorded by the crashproof that wrote version 1.
#[test]
fn traces_of_version_1_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-1.trace");
    let mut reader = TraceReader::open(path).unwrap();
    let mut stored = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Event(event) = item
            && let EventKind::Store { data, .. } = event.kind
        {
            stored.push(data.to_vec());
        }
    }
    assert_eq!(stored, [[42, 0, 0, 0, 0, 0, 0, 0]]);
    let pool = PmFile {
        path: "/mnt/pmem/pool".into(),
        size: 4096,
        created: false,
        kind: PmFileKind::File,
    };
    assert_eq!(reader.tables().files, [pool]);
    assert!(reader.incomplete().is_empty());
}

/// Written by the crashproof of each version, with the same calls.
#[test]
fn traces_of_versions_2_and_3_say_what_later_ones_do() {
    for version in [2, 3] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/version-{version}.trace"));
        let mut reader = TraceReader::open(path).unwrap();
        let mut shown = Vec::new();
        while let Some((item, tables)) = reader.next_with_tables().unwrap() {
            shown.push(dump::describe(&item, tables).to_string());
        }
        assert_eq!(shown, OLD_TRACE, "version {version}");
        let [place, plain] = &reader.tables().modules[..] else {
            panic!("two modules");
        };
        assert_eq!(
            *place,
            Module::of_place("lib.so", Some("put"), Some("/src/a.c"), Some(12))
        );
        assert_eq!((plain.path.as_str(), &plain.place), ("/usr/bin/app", &None));
        let kinds: Vec<_> = reader.tables().files.iter().map(|file| file.kind).collect();
        let expected = [
            PmFileKind::File,
            PmFileKind::UnknownMemory,
            PmFileKind::RegisteredMemory,
        ];
        assert_eq!(kinds, expected);
        assert!(reader.incomplete().is_empty());
        assert_eq!(reader.end().and_then(|end| end.status), Some(0));
    }
}

const OLD_TRACE: [&str; 23] = [
    "#0 T0 process-start P0 pid 100 /usr/bin/app",
    "#1 T0 thread-start P0 tid 100",
    "initial pool+0x0 len 5 [66 69 72 73 74]",
    "#2 T0 map pool+0x0 len 4096 at 0x10000 read-write",
    "#3 T0 annotation CRASHPROOF_OP_BEGIN(put)",
    "#4 T0 store pool+0x8 len 8 [2a 00 00 00 00 00 00 00]",
    "#5 T0 store memory at 0x5000+0x8 len 8 [2a 00 00 00 00 00 00 00]",
    "#6 T0 store registered memory 1+0x8 len 8 [2a 00 00 00 00 00 00 00]",
    "#7 T0 clwb pool+0x8",
    "#8 T0 sfence",
    "#9 T0 annotation CRASHPROOF_EXPECT_DURABLE(0x10008, 8)",
    "#10 T0 annotation CRASHPROOF_EXPECT_SNAPSHOTTED(0x10008, 8)",
    "#11 T0 annotation CRASHPROOF_EXPECT_ORDER(0x10008, 8, 0x10010, 4, backwards)",
    "#12 T0 annotation CRASHPROOF_OP_END(put)",
    "#13 T0 call pmemobj_tx_begin(0x1, 0x2, 0x3, 0x4, 0x5, 0x6)",
    "#14 T0 return pmemobj_alloc(0x1, 0x2, 0x40, 0x4, 0x5, 0x0) = 0x0 object 0x0+0x300",
    "#15 T0 request tx-add tx 7 pool+0x40 len 8",
    "#16 T0 sync pool+0x0 len 4096",
    "#17 T0 write pool+0x64 len 4 [64 61 74 61]",
    "#18 T0 resize pool to 8192",
    "#19 T0 rename pool to /mnt/pmem/new",
    "#20 T0 output fd 1 len 3 \"ok\\n\"",
    "#21 T0 process-end P0",
];

#[test]
fn errors_name_the_file_and_the_remedy() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.trace");
    let name = path.display();
    let missing = open_error(&path);
    assert!(missing.contains(&format!("crashproof record -o {name}")), "{missing}");
    let program = format!("crashproof check -- {name}");
    let foreign = [
        (&b""[..], "is not a crashproof trace"),
        (&[0; 5000], "is not a crashproof trace"),
        (b"#!/bin/sh\n", &program),
        (b"\x7fELF\x02\x01\x01", &program),
    ];
    for (foreign, words) in foreign {
        std::fs::write(&path, foreign).unwrap();
        let error = open_error(&path);
        assert!(error.contains(&name.to_string()) && error.contains(words), "{error}");
        assert!(error.contains("crashproof record -o"), "{error}");
    }
    assert!(open_error(directory.path()).contains("cannot read the trace"));

    let mut bytes = common::small_trace();
    bytes[8] = 99;
    std::fs::write(&path, &bytes).unwrap();
    assert!(open_error(&path).contains("has format version 99, and this crashproof reads versions 1 to 4"));

    bytes = common::small_trace();
    let in_block = format::encode_header(&header()).unwrap().len() as u64;
    bytes[in_block as usize + format::BLOCK_HEADER + 10] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let error = TraceReader::open(&path).unwrap().next().unwrap_err().to_string();
    assert!(
        error.contains("is damaged: the checksum of the block is wrong"),
        "{error}"
    );
    assert!(error.contains(&format!("block at byte {in_block}")), "{error}");
}

#[test]
fn something_after_the_end_is_damage() {
    let mut bytes = common::small_trace();
    bytes.extend_from_slice(&[0; 100]);
    assert!(
        common::read_all(bytes.clone()).1.is_ok(),
        "a reserve that could not be cut off"
    );
    bytes.push(1);
    assert!(common::read_all(bytes).1.is_err());
}

#[test]
fn a_device_that_is_full() {
    let error = TraceWriter::create("/dev/full", &header())
        .err()
        .expect("an error")
        .to_string();
    assert!(
        error.contains("cannot create the trace /dev/full: No space left on device"),
        "{error}"
    );
}

/// A small disk of its own; needs the right to mount.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(size: &str) -> SmallDisk {
        let directory = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(directory.path());
        let mounted = mount.output().expect("mount can be run");
        assert!(
            mounted.status.success(),
            "this test mounts a small disk, which only root can: run it as root, or leave it out with --skip"
        );
        SmallDisk(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Best effort: the test has its verdict already.
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_leaves_a_trace_that_says_so() {
    let disk = SmallDisk::mount("1m");
    let path = disk.0.path().join("x.trace");
    let mut writer = TraceWriter::create(&path, &header()).unwrap();
    let process = EventKind::ProcessStart {
        process: ProcessId(0),
        pid: 1,
        parent: None,
        executable: "app",
    };
    writer.event(ThreadId(0), StackId(0), &process).unwrap();
    writer
        .event(
            ThreadId(0),
            StackId(0),
            &EventKind::ThreadStart {
                process: ProcessId(0),
                os_id: 1,
            },
        )
        .unwrap();
    writer
        .file(&PmFile {
            path: "/mnt/pmem/pool".into(),
            size: 1 << 30,
            created: false,
            kind: PmFileKind::File,
        })
        .unwrap();
    let mut random = 1u64;
    let error = loop {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let at = PmAddress {
            file: FileId(0),
            offset: random >> 34,
        };
        let data = &random.to_le_bytes();
        let store = EventKind::Store {
            at,
            data,
            flags: StoreFlags::default(),
        };
        if let Err(error) = writer.event(ThreadId(0), StackId(0), &store) {
            break error;
        }
    };
    assert!(matches!(error, WriteError::Write { .. }), "{error}");
    // Readable even if the recorder dies now.
    let count = |end: Option<ProgramEnd>| {
        let mut reader = TraceReader::open(&path).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.end(), end);
        assert_eq!(reader.incomplete()[0].reason, IncompleteReason::WriteFailed);
        assert!(reader.incomplete()[0].detail.contains("No space left on device"));
        reader.counts().stores
    };
    let before = count(None);
    assert!(before > 10_000);
    // Something else takes what the trace gave back.
    std::fs::write(disk.0.path().join("other"), vec![1; 1 << 20]).unwrap_err();
    let end = ProgramEnd {
        status: Some(0),
        signal: None,
        ..ProgramEnd::default()
    };
    writer.finish(end).unwrap();
    assert_eq!(count(Some(end)), before);
}
