//! Eight threads on one PM file: nothing lost, nothing torn, contended operations in their true order.

use crate::support;

use crashproof_trace::{EventKind, Item, TraceReader};
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
