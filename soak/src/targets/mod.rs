//! Everything that reads what somebody else wrote, as functions of bytes.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crashproof_check::{CheckOptions, Config};
use crashproof_crash::{CampaignOptions, behaviour_list};
use crashproof_exchange::{pmemcheck, pmtest};
use crashproof_litmus::Litmus;
use crashproof_report::Baseline;
use crashproof_sites::ModuleSites;
use crashproof_trace::{Item, TraceReader, dump, format};

pub struct Target {
    pub name: &'static str,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub run: fn(&[u8]),
}

pub const ALL: [Target; 9] = [
    Target {
        name: "trace",
        seeds: traces,
        run: trace,
    },
    Target {
        name: "events",
        seeds: payloads,
        run: events,
    },
    Target {
        name: "behaviours",
        seeds: payloads,
        run: behaviours,
    },
    Target {
        name: "pmemcheck",
        seeds: pmemcheck_logs,
        run: import_pmemcheck,
    },
    Target {
        name: "pmtest",
        seeds: pmtest_logs,
        run: import_pmtest,
    },
    Target {
        name: "litmus",
        seeds: litmus_files,
        run: litmus,
    },
    Target {
        name: "configuration",
        seeds: configurations,
        run: configuration,
    },
    Target {
        name: "baseline",
        seeds: baselines,
        run: baseline,
    },
    Target {
        name: "sites",
        seeds: programs,
        run: sites,
    },
];

/// A file in memory that holds the bytes; `use_it` gets its path.
fn with_file<T>(bytes: &[u8], use_it: impl FnOnce(&Path) -> T) -> T {
    let mut file = tempfile::NamedTempFile::new_in(folder()).expect("there is room for a small file");
    file.write_all(bytes).expect("there is room for a small file");
    use_it(file.path())
}

/// In memory, if there is such a place.
fn folder() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn check_all(mut reader: TraceReader) {
    let _ = crashproof_check::check(&mut reader, &CheckOptions::default(), |_, _| {});
}

fn describe_all(mut reader: TraceReader) {
    let mut text = String::new();
    while let Ok(Some((item, tables))) = reader.next_with_tables() {
        text.clear();
        use std::fmt::Write;
        let _ = write!(text, "{}", dump::describe(&item, tables));
    }
}

fn read(bytes: &[u8], use_it: impl FnOnce(TraceReader)) {
    let source = std::io::Cursor::new(bytes.to_vec());
    if let Ok(reader) = TraceReader::from_source("input", Box::new(source), bytes.len() as u64) {
        use_it(reader);
    }
}

/// A trace file, byte by byte.
fn trace(bytes: &[u8]) {
    read(bytes, check_all);
    read(bytes, describe_all);
}

/// A trace whose checksums are right, so that what is wrong with its events is seen.
fn sealed(payload: &[u8]) -> Vec<u8> {
    let header = format::Header {
        command: vec!["program".to_owned()],
        options: format::Options::default(),
    };
    let mut trace = format::encode_header(&header).expect("a short header");
    let mut block = Vec::new();
    format::seal_block(&payload[..payload.len().min(format::BLOCK_TARGET)], 0, 0, &mut block);
    trace.extend_from_slice(&block);
    trace
}

fn events(payload: &[u8]) {
    trace(&sealed(payload));
}

fn behaviours(payload: &[u8]) {
    with_file(&sealed(payload), |path| {
        let _ = behaviour_list(path, &CampaignOptions::default());
    });
}

fn import_pmemcheck(log: &[u8]) {
    with_file(log, |path| {
        let trace = path.with_extension("trace");
        let _ = pmemcheck::import(path, &trace, &pmemcheck::ImportOptions::default());
        let _ = std::fs::remove_file(trace);
    });
}

fn import_pmtest(log: &[u8]) {
    with_file(log, |path| {
        let trace = path.with_extension("trace");
        let _ = pmtest::import(path, &trace);
        let _ = std::fs::remove_file(trace);
    });
}

fn litmus(text: &[u8]) {
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = Litmus::parse(text);
    }
}

fn configuration(text: &[u8]) {
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = Config::<toml::Table>::parse(text, Path::new("crashproof.toml"));
    }
}

fn baseline(text: &[u8]) {
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = Baseline::parse(text);
    }
}

fn sites(program: &[u8]) {
    with_file(program, |path| {
        let _ = ModuleSites::read(path);
    });
}

const PMEMCHECK_LOG: &str = "==1== pmemcheck-1.0, a simple persistent store checker\n\
    ==1== START|REGISTER_FILE;/mnt/pmem/pool;0x5200000;0x1000;0x0\
    |STORE;0x5200040;0x1;0x8;0x1091A8: push (queue.c:17);0x109227: main (queue.c:36)\
    |STORE;0x5200048;0x656e6f;0x4;0x49F0182: __strcpy_avx2 (strcpy-avx2.S:582);0x1091B5: push (queue.c:18)\
    |FLUSH;0x5200040;0x40|FENCE|STORE;0x5200008;0x1;0x8|FLUSH;0x5200000;0x40|FENCE|STOP\n";
const PMTEST_LOG: &str =
    "_ASSIGN 0x1040 8 a.c 1\n_FLUSH 0x1040 8 a.c 2\n_FENCE 0 0 a.c 3\n_ISPERSISTED 0x1040 8 a.c 4\n";

fn pmemcheck_logs() -> Vec<Vec<u8>> {
    vec![PMEMCHECK_LOG.into()]
}

fn pmtest_logs() -> Vec<Vec<u8>> {
    vec![PMTEST_LOG.into()]
}

fn traces() -> Vec<Vec<u8>> {
    let imported = |import: &dyn Fn(&Path, &Path) -> bool, log: &str| {
        with_file(log.as_bytes(), |path| {
            let trace = path.with_extension("trace");
            let made = import(path, &trace).then(|| std::fs::read(&trace).ok()).flatten();
            let _ = std::fs::remove_file(trace);
            made
        })
    };
    let from_pmemcheck = |log: &Path, trace: &Path| pmemcheck::import(log, trace, &Default::default()).is_ok();
    let from_pmtest = |log: &Path, trace: &Path| pmtest::import(log, trace).is_ok();
    let traces = [
        imported(&from_pmemcheck, PMEMCHECK_LOG),
        imported(&from_pmtest, PMTEST_LOG),
    ];
    traces.into_iter().flatten().collect()
}

/// What the blocks of the good traces hold.
fn payloads() -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for trace in traces() {
        let mut rest = &trace[..];
        while let Some(at) = rest.windows(4).position(|window| window == format::BLOCK_MARKER) {
            rest = &rest[at..];
            let Some((head, after)) = rest.split_first_chunk::<{ format::BLOCK_HEADER }>() else {
                break;
            };
            let mut raw = Vec::new();
            if let Ok(header) = format::BlockHeader::decode(head)
                && let Some(packed) = after.get(..header.packed_len as usize)
                && format::open_block(&header, packed, &mut raw).is_ok()
            {
                payloads.push(raw);
            }
            rest = after;
        }
    }
    payloads
}

fn litmus_files() -> Vec<Vec<u8>> {
    vec![
        b"threads 1\nx = 1\nflush x\nfence\ny = 1\nassert x before y\n".to_vec(),
        b"# a comment\nline a: x y\nx = 1\ny = 2\n".to_vec(),
    ]
}

fn configurations() -> Vec<Vec<u8>> {
    vec![
        b"[[ignore]]\nkind = \"missing-flush\"\nfunction = \"log_*\"\nreason = \"volatile\"\n\n\
          [[rule]]\nkind = \"must-persist-before\"\nfirst = { type = \"node\" }\nthen = { function = \"push\" }\n"
            .to_vec(),
        b"[[test]]\nname = \"kv\"\ncommand = \"./kv pool\"\nrecover = \"./kv pool --check\"\ntime = \"2m\"\n".to_vec(),
    ]
}

fn baselines() -> Vec<Vec<u8>> {
    vec![
        br#"{"format":1,"findings":[{"kind":"missing-flush","severity":"error","file":"a.c","line":3,"count":1}]}"#
            .to_vec(),
    ]
}

/// This program, which has sections, symbols and debug info; only its ends, which hold the headers.
fn programs() -> Vec<Vec<u8>> {
    let own = std::env::current_exe().ok().and_then(|path| File::open(path).ok());
    let mut head = vec![0; 4096];
    if let Some(mut file) = own {
        use std::io::Read;
        let _ = file.read_exact(&mut head);
    }
    vec![head]
}

/// Whether the seeds are what they are meant to be: inputs that are refused at the first byte find nothing.
pub fn seeds_are_good() -> Result<(), String> {
    for trace in traces() {
        let mut events = 0;
        read(&trace, |mut reader| {
            while let Ok(Some(item)) = reader.next() {
                events += u64::from(matches!(item, Item::Event(_)));
            }
        });
        if events == 0 {
            return Err("a seed of `trace` has no events".to_owned());
        }
    }
    match (traces().len(), payloads().len()) {
        (2, 2..) => Ok(()),
        (traces, payloads) => Err(format!("{traces} traces and {payloads} payloads as seeds")),
    }
}
