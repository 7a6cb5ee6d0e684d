//! Eight threads on one PM file: nothing lost, nothing torn, contended operations in their true order.

use crate::support;

use crashproof_trace::{EventKind, Item, TraceReader};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{compile, crashproof, run, source, text};

const THREADS: u64 = 8;
const ROUNDS: u64 = 2000;

#[test]
fn contended_stores_are_recorded_in_their_true_order() {
    let folder = tempfile::tempdir().unwrap();
    let (program, pool, trace) = (
        folder.path().join("contended"),
        folder.path().join("pool"),
        folder.path().join("trace"),
    );
    compile(
        "gcc",
        &["-g", "-O2", "-mclwb", "-pthread", &source("threads/contended.c")],
        &program,
    );
    let mut record = crashproof();
    record
        .arg("record")
        .arg("-o")
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .arg(&pool);
    assert_eq!(
        text(&run(&mut record, 0).stdout),
        format!("counter {}\n", THREADS * ROUNDS)
    );

    let mut reader = TraceReader::open(&trace).unwrap();
    let (mut counter, mut shared, mut own) = (0u64, 0u64, vec![0u64; THREADS as usize]);
    let mut last_of_thread = [0u64; THREADS as usize];
    let mut final_shared = 0;
    while let Some(item) = reader.next().unwrap() {
        let Item::Event(event) = item else { continue };
        let EventKind::Store { at, data, flags } = event.kind else {
            continue;
        };
        let value = u64::from_le_bytes(data.try_into().expect("every store here is 8 bytes"));
        let (thread, round) = ((value >> 32) as usize, value & 0xffff_ffff);
        match at.offset {
            0 => {
                assert!(flags.locked);
                counter += 1;
                assert_eq!(value, counter, "increment {counter} is out of order");
            }
            64 => {
                assert!(!flags.locked);
                shared += 1;
                assert_eq!(
                    round,
                    last_of_thread[thread] + 1,
                    "thread {thread} stored out of its own order"
                );
                last_of_thread[thread] = round;
                final_shared = value;
            }
            offset => {
                assert_eq!((offset - 128) / 512, thread as u64);
                own[thread] += 1;
                assert_eq!(own[thread], round);
            }
        }
    }
    assert!(reader.incomplete().is_empty(), "{:?}", reader.incomplete());
    assert_eq!((counter, shared), (THREADS * ROUNDS, THREADS * ROUNDS));
    assert!(own.iter().all(|&n| n == ROUNDS));
    let file = std::fs::read(&pool).unwrap();
    assert_eq!(
        final_shared,
        u64::from_le_bytes(file[64..72].try_into().unwrap()),
        "the last plain store is not the one that stayed"
    );
}

/// A copy of this process's libc, of which no symbols are found: there are none in it but those for the loader, and its build id is nobody's.
fn libc_without_names(folder: &Path) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .split_whitespace()
        .find(|word| word.ends_with("/libc.so.6"))
        .unwrap();
    let copy = folder.join("libc.so.6");
    run(Command::new("strip").arg("-o").arg(&copy).arg(path), 0);
    let mut image = std::fs::read(&copy).unwrap();
    let note = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = image.windows(note.len()).position(|bytes| bytes == note).unwrap();
    image[at + note.len()..][..20].fill(0x5a);
    std::fs::write(&copy, image).unwrap();
}

#[test]
fn locks_are_known_without_the_names_of_the_c_library() {
    let folder = tempfile::tempdir().unwrap();
    let [program, pool, json] = ["locks", "pool", "json"].map(|name| folder.path().join(name));
    libc_without_names(folder.path());
    let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/threads/locks-beside-data.c");
    compile("gcc", &["-g", "-pthread", case], &program);
    let mut check = crashproof();
    check.arg("check").arg("--json").arg(&json).args(["--", "env"]);
    check.arg(format!("LD_LIBRARY_PATH={}", folder.path().display()));
    run(check.arg(&program).arg(&pool), 1);
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let of = |kind: &str| findings.iter().filter(|f| f["kind"] == kind).collect::<Vec<_>>();
    let innermost = |finding: &Value| finding["stack"][0]["module"].as_str().unwrap().to_owned();
    let copy = folder.path().join("libc.so.6").display().to_string();
    assert!(
        of("transient-data").iter().any(|f| innermost(f) == copy),
        "{findings:#?}"
    );
    // One for each of the fields beside the locks, and none in the library.
    assert_eq!(of("missing-flush").len(), 7, "{findings:#?}");
    assert!(
        of("missing-flush")
            .iter()
            .all(|f| innermost(f) == program.display().to_string())
    );
    assert_eq!(of("missing-fence").len(), 0, "{findings:#?}");
}
