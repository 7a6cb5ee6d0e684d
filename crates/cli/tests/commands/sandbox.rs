//! The `crashproof` program as the supervisor of a sandbox, and as a command in one: a recovery is recorded there.

use crate::support;

use std::path::Path;
use std::time::Duration;

use crashproof_sandbox::{Command, How, Limits, Options, PmFile, Track, Worker};
use crashproof_trace::{EventKind, Item, TraceReader};
use support::compile;

/// Sets the second byte of the file to 1; the file must hold `x` in the first.
const RECOVERY: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR);
    char *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED || pm[0] != 'x' || pm[1] != 0)
        return 1;
    pm[1] = 1;
    return 0;
}
"#;

#[test]
fn a_recovery_is_run_and_recorded_in_a_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program, pool) = (
        folder.path().join("recovery.c"),
        folder.path().join("recovery"),
        folder.path().join("pool"),
    );
    std::fs::write(&source, RECOVERY).unwrap();
    compile("gcc", &["-O1", source.to_str().unwrap()], &program);
    let crashproof = Path::new(env!("CARGO_BIN_EXE_crashproof"));
    let mut worker = Worker::start(&Options {
        files: vec![PmFile {
            path: pool.clone(),
            size: 4096,
            present: true,
        }],
        recover: Command::Direct(vec![program.clone().into(), pool.clone().into()]),
        check: None,
        directory: folder.path().to_owned(),
        limits: Limits {
            time: Duration::from_secs(20),
            memory: 1 << 30,
            disk: 64 << 20,
        },
        track: Track::Writes,
        fine: Vec::new(),
        mappings: Vec::new(),
        environment: Vec::new(),
        runtime: crashproof_testing::runtime(),
        supervisor: crashproof.into(),
        no_server: false,
        compare: false,
        hidden: Vec::new(),
        capture: crashproof_sandbox::DEFAULT_CAPTURE,
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(*worker.how(), How::Parked);
    assert_eq!(worker.run(b"").unwrap().recovery.status, Some(1));
    worker.write(0, 0, b"x");
    let run = worker.run(b"").unwrap();
    assert!(run.recovery.succeeded() && run.wrote);

    let share = tempfile::tempdir().unwrap();
    let trace = share.path().join("trace");
    let mut record: Vec<std::ffi::OsString> =
        vec![crashproof.into(), "record".into(), "-o".into(), trace.clone().into()];
    record.extend(["--".into(), program.into(), pool.clone().into()]);
    let ended = worker.run_other(&Command::Direct(record), share.path()).unwrap();
    assert!(ended.succeeded(), "{}", String::from_utf8_lossy(&ended.stderr));
    let mut reader = TraceReader::open(&trace).unwrap();
    let mut stores = 0;
    while let Some(item) = reader.next().unwrap() {
        if let Item::Event(event) = item {
            stores += u32::from(matches!(event.kind, EventKind::Store { .. }));
        }
    }
    assert_eq!(stores, 1);

    // The recording left nothing in the image, and nothing outside.
    assert!(worker.run(b"").unwrap().recovery.succeeded());
    assert!(!pool.exists());
}
