//! What users do wrong, and what goes wrong around them: each gets a message that names the cause and the remedy, a status
//! that a script can use, and nothing that was recorded is lost.

use crate::support;

use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{SmallDisk, compile, crashproof, run, source, text};
use tempfile::TempDir;

fn endings(folder: &TempDir) -> PathBuf {
    let program = folder.path().join("endings");
    compile("gcc", &["-g", "-O1", &source("bad_input/endings.c")], &program);
    program
}

/// Runs `crashproof` and returns its status and what it said; it must never panic.
fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{command:?}: {said}");
    (output.status.code(), said)
}

fn assert_refused(command: &mut Command, words: &[&str]) {
    let (status, said) = outcome(command);
    assert_eq!(status, Some(2), "{command:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{command:?} does not say `{word}`: {said}");
    }
}

fn recorded(folder: &TempDir, how: &str) -> PathBuf {
    let trace = folder.path().join("trace");
    let mut record = crashproof();
    record
        .args(["record", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(endings(folder))
        .arg(folder.path().join("pool"))
        .arg(how);
    run(&mut record, 7);
    trace
}

#[test]
fn files_that_are_no_traces() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let foreign = file("foreign", b"GIF89a and something else");
    let (empty, missing) = (file("empty", b""), folder.path().join("missing"));
    for subcommand in ["check", "dump"] {
        assert_refused(
            crashproof().arg(subcommand).arg(&foreign),
            &["foreign", "not a crashproof trace", "crashproof record"],
        );
        assert_refused(
            crashproof().arg(subcommand).arg(&empty),
            &["empty", "not a crashproof trace"],
        );
        assert_refused(crashproof().arg(subcommand).arg(&missing), &["missing", "No such file"]);
        assert_refused(crashproof().arg(subcommand).arg(folder.path()), &["irectory"]);
    }
}

#[test]
fn truncated_and_damaged_traces() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(recorded(&folder, "exit")).unwrap();
    let path = folder.path().join("bad");
    let step = whole.len().div_ceil(40);
    for n in (1..whole.len()).step_by(step) {
        std::fs::write(&path, &whole[..n]).unwrap();
        let (status, said) = outcome(crashproof().arg("check").arg(&path));
        assert_ne!(status, Some(0), "cut to {n} bytes: {said}");
        let mut damaged = whole.clone();
        damaged[n] ^= 0x41;
        std::fs::write(&path, damaged).unwrap();
        outcome(crashproof().arg("check").arg(&path));
    }
}

#[test]
fn programs_that_cannot_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let static_program = folder.path().join("static");
    compile("gcc", &["-static", &source("bad_input/endings.c")], &static_program);
    assert_refused(
        crashproof().args(["check", "--"]).arg(&static_program),
        &["static", "statically linked"],
    );
    assert_refused(
        crashproof().args(["check", "--", "./no-such-program"]),
        &["no-such-program", "no such program"],
    );
    let text_file = folder.path().join("notes.txt");
    std::fs::write(&text_file, "hello").unwrap();
    assert_refused(
        crashproof().args(["check", "--"]).arg(&text_file),
        &["notes.txt", "permission denied"],
    );
    let trace = folder.path().join("no/such/folder/trace");
    assert_refused(
        crashproof().args(["record", "-o"]).arg(&trace).args(["--", "true"]),
        &["no/such/folder"],
    );
}

#[test]
fn a_program_without_debug_info_gets_addresses_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bare");
    compile("gcc", &["-O1", "-s", &source("bad_input/endings.c")], &program);
    let mut check = crashproof();
    let (status, said) = outcome(
        check
            .args(["check", "--"])
            .arg(&program)
            .arg(folder.path().join("pool"))
            .arg("exit"),
    );
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("missing-flush") && said.contains("0x") && said.contains("-g"),
        "{said}"
    );
}

fn check_ending(how: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let mut check = crashproof();
    check
        .args(["check", "--json"])
        .arg(&json)
        .arg("--")
        .arg(endings(&folder))
        .arg(folder.path().join("pool"))
        .arg(how);
    let (status, said) = outcome(&mut check);
    assert_eq!(status, Some(1), "{how}: {said}");
    report(&json)
}

fn report(json: &Path) -> Value {
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    assert_eq!(
        (&findings[0]["kind"], &findings[0]["line"]),
        (&"missing-flush".into(), &19.into()),
        "{report:#}"
    );
    assert_eq!(report["trace"]["complete"], true, "{report:#}");
    report
}

#[test]
fn programs_that_die_are_checked_up_to_their_death() {
    for (how, signal) in [("kill", 9), ("segfault", 11), ("abort", 6)] {
        let report = check_ending(how);
        assert_eq!(
            (&report["program"]["signal"], &report["program"]["status"]),
            (&signal.into(), &(128 + signal).into()),
            "{how}"
        );
    }
    assert_eq!(check_ending("exit")["program"]["status"], 7);
}

#[test]
fn record_ends_as_the_program_did() {
    use std::os::unix::process::ExitStatusExt;
    let folder = tempfile::tempdir().unwrap();
    for (how, signal) in [("kill", 9), ("segfault", 11), ("abort", 6)] {
        let mut record = crashproof();
        record
            .args(["record", "-o"])
            .arg(folder.path().join("trace"))
            .arg("--")
            .arg(endings(&folder));
        let output = record.arg(folder.path().join("pool")).arg(how).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{how}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "stored\n");
    }
}

#[test]
fn ctrl_c_ends_the_program_and_checks_the_trace_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let mut check = crashproof();
    check
        .args(["check", "--json"])
        .arg(&json)
        .arg("--")
        .arg(endings(&folder))
        .arg(folder.path().join("pool"));
    check
        .arg("forever")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = check.spawn().unwrap();
    let mut lines = [0u8; 15];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut lines).unwrap();
    assert_eq!(&lines, b"stored\nwaiting\n");
    let start = Instant::now();
    run(
        Command::new("kill")
            .arg("-INT")
            .arg("--")
            .arg(format!("-{}", child.id())),
        0,
    );
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(report(&json)["program"]["signal"], 2);
}

#[test]
fn a_full_disk_stops_the_trace_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = SmallDisk::mount(disk.clone(), "256k");
    let trace = disk.join("trace");
    let mut record = crashproof();
    record
        .args(["record", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(endings(&folder))
        .arg(folder.path().join("pool"))
        .arg("much");
    let output = record.output().unwrap();
    let (status, said) = (output.status.code(), text(&output.stderr));
    let (check_status, check_said) = outcome(crashproof().arg("check").arg(&trace));
    drop(mounted);
    assert_eq!(
        (status, text(&output.stdout)),
        (Some(7), "stored\ndone\n".into()),
        "{said}"
    );
    assert!(said.contains("No space left"), "{said}");
    assert!(matches!(check_status, Some(1 | 2)), "{check_said}");
    assert!(
        check_said.contains("incomplete") && check_said.contains("No space left"),
        "{check_said}"
    );
}
