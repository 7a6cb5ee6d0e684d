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
        limits: Limits {
            time: Duration::from_secs(20),
            memory: 1 << 30,
            disk: 64 << 20,
        },
        track: Track::Writes,
        fine: Vec::new(),
        mappings: Vec::new(),
        environment: Vec::new(),
        runtime: crashproof.with_file_name("libcrashproof_runtime.so"),
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

/// Without root, what belongs to other users cannot be changed in the sandbox; the kernel's words for that mislead.
#[test]
fn a_recovery_that_writes_where_it_cannot_is_told_why() {
    // SAFETY: only returns a number of this process.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: this is not root");
        return;
    }
    let folder = tempfile::Builder::new()
        .prefix("crashproof-user-")
        .tempdir_in("/tmp")
        .unwrap();
    let place = |name: &str| folder.path().join(name);
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    };
    let own = Path::new(env!("CARGO_BIN_EXE_crashproof"));
    for name in ["crashproof", "libcrashproof_runtime.so"] {
        std::fs::copy(own.with_file_name(name), place(name)).unwrap();
    }
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo/event_log.c");
    let demo = demo.display().to_string();
    compile("gcc", &["-g", "-O1", "-mclwb", &demo], &place("event_log"));
    for name in ["home", "others"] {
        std::fs::create_dir(place(name)).unwrap();
        open(&place(name));
    }
    open(folder.path());
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([
            "./crashproof",
            "crash",
            "--recover",
            "echo x > others/new",
            "--",
            "./event_log",
            "log",
        ])
        .env("HOME", place("home"))
        .env_remove("XDG_STATE_HOME")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = support::text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("it cannot change files or folders that belong to other users"),
        "{said}"
    );
}
