//! Logs of pmemcheck against our own recording of the same program.

use crate::support;

use std::collections::BTreeSet;
use std::path::Path;

use crashproof_finding::{Kind, Report};
use support::{compile, crashproof, run};

/// Kind and place of what is found; of flushes the log has no places.
fn found(json: &Path) -> BTreeSet<(Kind, String, u32)> {
    let report: Report = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let findings = report.findings.into_iter();
    findings
        .map(|finding| match finding.kind {
            Kind::MissingFlush | Kind::MissingFence => {
                let file = finding.file.unwrap_or_default();
                let name = file.rsplit('/').next().unwrap_or_default().to_owned();
                (finding.kind, name, finding.line.unwrap_or(0))
            }
            kind => (kind, String::new(), 0),
        })
        .collect()
}

#[test]
fn a_log_of_pmemcheck_gives_what_our_own_recording_gives() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/tests/data");
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    compile(
        "gcc",
        &["-g", "-O1", &data.join("queue.c").display().to_string(), "-lpmem"],
        &place("queue"),
    );
    let own = [
        "check",
        "--json",
        "own.json",
        "--keep-trace",
        "own.trace",
        "--",
        "./queue",
        "pool",
    ];
    run(crashproof().current_dir(folder.path()).args(own), 1);
    let log = data.join("queue.log");
    let import = ["import", "pmemcheck", "-o", "imported.trace"];
    run(crashproof().current_dir(folder.path()).args(import).arg(&log), 0);
    let imported = ["check", "--json", "imported.json", "imported.trace"];
    run(crashproof().current_dir(folder.path()).args(imported), 1);
    let own = found(&place("own.json"));
    assert_eq!(own, found(&place("imported.json")));
    assert_eq!(
        own.iter().filter(|(kind, ..)| *kind == Kind::MissingFlush).count(),
        2,
        "{own:?}"
    );
    // Our own recording as a log, and that as a trace again.
    let export = ["export", "--format", "pmemcheck", "own.trace", "-o", "own.log"];
    let output = run(crashproof().current_dir(folder.path()).args(export), 0);
    assert!(support::text(&output.stderr).contains("not in the export: unmappings"));
    let back = ["import", "pmemcheck", "own.log", "-o", "back.trace"];
    run(crashproof().current_dir(folder.path()).args(back), 0);
    run(
        crashproof()
            .current_dir(folder.path())
            .args(["check", "--json", "back.json", "back.trace"]),
        1,
    );
    assert_eq!(own, found(&place("back.json")));
    run(
        crashproof()
            .current_dir(folder.path())
            .args(["export", "--format", "perfetto", "own.trace"]),
        0,
    );
    // Wrong logs.
    std::fs::write(place("bad.log"), "START|FENCE\n|STORE;1\n").unwrap();
    let bad = run(
        crashproof()
            .current_dir(folder.path())
            .args(["import", "pmemcheck", "bad.log", "-o", "bad.trace"]),
        2,
    );
    let said = support::text(&bad.stderr);
    assert!(said.contains("bad.log:2: record 1: STORE has 1 fields"), "{said}");
}

#[test]
fn a_log_of_pmtest_is_checked_and_not_crashed() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/tests/data/ledger.log");
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |arguments: &[&str], status| {
        let output = run(crashproof().current_dir(folder.path()).args(arguments), status);
        support::text(&output.stderr)
    };
    let log = log.display().to_string();
    let said = in_folder(&["import", "pmtest", &log, "-o", "ledger.trace"], 0);
    assert!(said.contains("10 stores, 8 flushes, 9 fences and 7 checkers"), "{said}");
    in_folder(&["check", "--json", "ledger.json", "ledger.trace"], 1);
    let report: Report = serde_json::from_slice(&std::fs::read(folder.path().join("ledger.json")).unwrap()).unwrap();
    let kinds: BTreeSet<_> = report.findings.iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&Kind::ExpectOrder) && kinds.contains(&Kind::TxStoreNotSnapshotted));
    let said = in_folder(&["crash", "--recover", "true", "ledger.trace"], 2);
    assert!(said.contains("the trace has no values"), "{said}");
    let files = ["import", "pmtest", &log, "-o", "x.trace", "--initial", "a=b"];
    let said = in_folder(&files, 2);
    assert!(said.contains("--initial is for logs of pmemcheck"), "{said}");
    std::fs::write(folder.path().join("bad.log"), "ok\n_FLUSH 0x40 x a.c 1\n").unwrap();
    let said = in_folder(&["import", "pmtest", "bad.log", "-o", "bad.trace"], 2);
    assert!(said.contains("bad.log:2: the size \"x\" is not a number"), "{said}");
}

/// Stores without a call stack made a field that was its own inner field, and naming it never ended.
#[test]
fn traces_without_call_stacks_are_explained() {
    let logs = [
        ("pmtest", "_ASSIGN 0x1040 8 a.c 1\n"),
        (
            "pmemcheck",
            "==1== START|REGISTER_FILE;/mnt/pmem/pool;0x5200000;0x1000;0x0|STORE;0x5200040;0x1;0x8\
             |FLUSH;0x5200040;0x40|FENCE|STORE;0x5200080;0x1;0x8|STOP\n",
        ),
    ];
    for (format, log) in logs {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("log"), log).unwrap();
        let import = ["import", format, "-o", "trace", "log"];
        run(crashproof().current_dir(folder.path()).args(import), 0);
        // Without an end this would take all memory, too.
        let mut bounded = std::process::Command::new("timeout");
        bounded.arg("100").arg(crashproof().get_program());
        let explained = run(bounded.current_dir(folder.path()).args(["explain", "trace"]), 0);
        assert!(
            String::from_utf8_lossy(&explained.stdout).contains("stand for all"),
            "{format}"
        );
    }
}
