//! `crashproof crash` and `test`, stopped and killed at any time: nothing is lost, nothing is left, and it can be gone on with.

use crate::support;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::place::{APPEND, Place, cause, expect, expect_words, nothing_runs, running};
use support::text;

/// Starts a slow test in the background and waits until it has tested something.
fn start_slow(place: &Place, options: &[&str]) -> Child {
    let child = place
        .command()
        .args([
            "crash",
            "--jobs",
            "2",
            "--strategy",
            "exhaustive",
            "--no-server",
            "--recover",
            "./pool verify-slow p",
        ])
        .args(options)
        .args(["--", "./pool", "append-early", "p", "20"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while tested_in_journal(place) < 100 {
        assert!(start.elapsed() < Duration::from_secs(60), "no journal was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        running(place).len() > 2,
        "crashproof and its sandboxes: {:?}",
        running(place)
    );
    child
}

/// Bytes that the journal holds.
fn tested_in_journal(place: &Place) -> u64 {
    let journals = place.state().into_iter().map(|folder| folder.join("journal"));
    let sizes = journals.filter_map(|journal| Some(journal.metadata().ok()?.len()));
    sizes.max().unwrap_or(0)
}

#[test]
fn killed_in_the_middle_nothing_is_lost_and_nothing_left() {
    let whole = Place::new();
    let options = ["--strategy", "exhaustive", "--recover", "./pool verify p"];
    let expected = whole.crash(1, &options, &["./pool", "append-early", "p", "20"]);

    let place = Place::new();
    let mut child = start_slow(&place, &[]);
    // SIGKILL: it cannot clean up.
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_runs(&place);
    let noted = tested_in_journal(&place);
    assert!(noted > 0);

    let output = place
        .command()
        .args([
            "crash",
            "--resume",
            "--json",
            "-",
            "--jobs",
            "2",
            "--strategy",
            "exhaustive",
            "--no-server",
        ])
        .args([
            "--recover",
            "./pool verify-slow p",
            "--",
            "./pool",
            "append-early",
            "p",
            "20",
        ])
        .output()
        .unwrap();
    expect(&output, 1);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stats"]["states_total"], expected["stats"]["states_total"]);
    let causes = |report: &Value| -> Vec<Value> { report["findings"].as_array().unwrap().iter().map(cause).collect() };
    assert_eq!(causes(&report), causes(&expected));
    nothing_runs(&place);
    assert_eq!(tested_in_journal(&place), 0, "the test is done");
}

#[test]
fn interrupted_it_reports_what_there_is() {
    let place = Place::new();
    let child = start_slow(&place, &["--json", "partial.json"]);
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    expect_words(&output, &["interrupted", "--resume"]);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{}", text(&output.stderr));
    nothing_runs(&place);
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("partial.json")).unwrap()).unwrap();
    assert_eq!(report["stats"]["cut_short"], true);
    assert_eq!(
        output.status.code() == Some(1),
        !report["findings"].as_array().unwrap().is_empty()
    );
}

/// States that the journal says were tested: after a header of 24 bytes, each entry has its length and a checksum before it.
fn entries_in_journal(place: &Place) -> u64 {
    let journals = place.state().into_iter().map(|folder| folder.join("journal"));
    let content = journals
        .filter_map(|journal| std::fs::read(journal).ok())
        .max_by_key(Vec::len);
    let content = content.unwrap_or_default();
    let (mut rest, mut entries) = (content.get(24..).unwrap_or(&[]), 0);
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        rest = rest.get(8 + u32::from_le_bytes(*length) as usize..).unwrap_or(&[]);
        entries += 1;
    }
    entries
}

#[test]
fn interrupted_while_it_explains_it_reports_what_failed() {
    let program = ["./pool", "append-early", "p", "6"];
    let place = Place::new();
    let fast = place.crash(1, &["--strategy", "prefix", "--recover", "./pool verify p"], &program);
    let tested = fast["stats"]["states_tested"].as_u64().unwrap();

    let place = Place::new();
    let mut child = place
        .command()
        .args(["crash", "--jobs", "1", "--strategy", "prefix", "--json", "partial.json"])
        .args([
            "--timeout",
            "30s",
            "--recover",
            "./pool verify p || { sleep 1; exit 3; }",
            "--",
        ])
        .args(program)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    // All are tested: only explaining keeps it.
    while entries_in_journal(&place) < tested {
        assert!(start.elapsed() < Duration::from_secs(120), "not all states were tested");
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    expect(&output, 1);
    expect_words(&output, &["interrupted", "--resume"]);
    nothing_runs(&place);
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("partial.json")).unwrap()).unwrap();
    assert_eq!(report["stats"]["cut_short"], true);
    assert_eq!(report["stats"]["states_tested"], tested);
    let failed = report["stats"]["states_failed"].as_u64().unwrap();
    let findings = report["findings"].as_array().unwrap();
    let states = |finding: &Value| finding["crash"]["states"].as_u64().unwrap();
    let told: u64 = findings.iter().map(states).sum();
    assert!(failed > 0 && told >= failed, "{report:#}");
    for finding in findings {
        let folder = finding["crash"]["replay"]["directory"].as_str().unwrap();
        expect(&place.crashproof(&["crash", "--replay", folder]), 1);
    }
}

#[test]
fn interrupted_before_anything_was_tested_nothing_is_left() {
    let place = Place::new();
    let mut child = place
        .command()
        .args(["crash", "--recover", "sleep 60", "--"])
        .args(APPEND)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    wait_for(&place, &mut child, "sleep 60");
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    expect(&output, 2);
    expect_words(&output, &["interrupted before anything was tested"]);
    assert!(start.elapsed() < Duration::from_secs(50), "it waited for the recovery");
    nothing_runs(&place);
    assert_eq!(place.state(), [] as [PathBuf; 0]);
}

/// Waits until a process of the place has this as its command line. A shell that is to run it does not do: one that gets a signal just
/// before runs it all the same.
fn wait_for(place: &Place, child: &mut Child, command: &str) {
    let start = Instant::now();
    let end = format!(": {command}");
    let runs = |process: &String| process.trim_end().ends_with(&end);
    while !running(place).iter().any(runs) {
        assert!(start.elapsed() < Duration::from_secs(60), "{command} does not start");
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is killed before there is a trace leaves a folder, which the next test removes.
fn killed_at(options: &[&str], program: &[&str], command: &str) {
    let place = Place::new();
    let mut child = place
        .command()
        .args(["crash", "--recover", "./pool verify p"])
        .args(options)
        .arg("--")
        .args(program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&place, &mut child, command);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_runs(&place);
    assert_eq!(place.state().len(), 1);
    place.crash(0, &["--recover", "./pool verify p", "--strategy", "prefix"], &APPEND);
    assert_eq!(place.state(), [] as [PathBuf; 0], "nobody can resume it");
}

#[test]
fn killed_in_the_set_up_nothing_is_left() {
    killed_at(&["--setup", "setsid sleep 61 & sleep 62"], &APPEND, "sleep 62");
}

#[test]
fn killed_while_the_program_is_recorded_nothing_is_left() {
    let program = ["sh", "-c", "setsid sleep 63 & ./pool append p 3; sleep 64; exit 0"];
    killed_at(&[], &program, "sleep 64");
}

#[test]
fn signals_and_statuses_of_a_kept_program_are_its_own() {
    let place = Place::new();
    for (program, words) in [
        ("exit 5", "exited with status 5"),
        ("kill -9 $$", "was ended by signal 9"),
    ] {
        let program = format!("./pool append p 1; {program}");
        let output = place.crashproof(&["crash", "--recover", "./pool verify p", "--", "sh", "-c", &program]);
        expect(&output, 2);
        expect_words(&output, &[words]);
    }
    let output = place.crashproof(&["crash", "--setup", "exit 7", "--recover", "true", "--", "./pool"]);
    expect(&output, 2);
    expect_words(&output, &["exited with status 7"]);
    let output = place.crashproof(&["crash", "--recover", "true", "--", "./no-such-program"]);
    expect(&output, 2);
    expect_words(&output, &["./no-such-program"]);
}

/// Each run of the recovery leaves a byte in a file that is open from the beginning, which no sandbox undoes.
#[test]
fn a_resumed_state_is_not_run_again() {
    let place = Place::new();
    let crash = |options: &[&str]| -> Value {
        let mut command = place.command();
        command
            .args(["crash", "--json", "-", "--jobs", "1", "--strategy", "exhaustive"])
            .args(options)
            .args(["--setup", "./pool create p", "--recover", "./pool verify p; exit $?"])
            .args(["--", "./pool", "append", "p", "8"]);
        let output = command.output().unwrap();
        expect(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = crash(&[]);
    let part = crash(&["--max-states", "10"]);
    assert_eq!(part["stats"]["cut_short"], true);
    let rest = crash(&["--resume"]);
    for count in ["states_total", "states_tested", "states_failed"] {
        assert_eq!(rest["stats"][count], whole["stats"][count], "{count}");
    }
    let count = |report: &Value, what: &str| report["stats"][what].as_u64().unwrap();
    let (all, first, second) = (
        count(&whole, "recoveries"),
        count(&part, "recoveries"),
        count(&rest, "recoveries"),
    );
    assert!(all > 20, "{all} runs");
    // What each test runs beside the states: the first state twice.
    let beside = all - count(&whole, "states_tested");
    let tested = count(&part, "states_tested");
    assert_eq!(first, tested + beside);
    assert!(
        second <= all - tested,
        "{all} runs in one go, {first} before the interruption and {second} after it"
    );
}

#[test]
fn what_was_built_anew_is_not_resumed() {
    for (recover, first) in [
        ("./verify.sh p", "#!/bin/sh\n"),
        ("sh verify.sh p; exit $?", "#!/bin/sh\n"),
        ("sh -e verify.sh p", ""),
    ] {
        let place = Place::new();
        let script = |last: &str| {
            let text = format!("{first}exec ./pool verify \"$1\"{last}\n");
            match first {
                "" => std::fs::write(place.path().join("verify.sh"), text).unwrap(),
                _ => place.script("verify.sh", &text),
            }
        };
        script("");
        let options = ["crash", "--jobs", "1", "--recover", recover, "--strategy", "exhaustive"];
        let crash = |more: &[&str]| place.crashproof(&[&options[..], more, &["--"], &APPEND].concat());
        expect(&crash(&["--max-states", "3"]), 0);
        expect(&crash(&["--resume", "--max-states", "5"]), 0);
        script(" ");
        let rebuilt = crash(&["--resume"]);
        expect(&rebuilt, 2);
        expect_words(&rebuilt, &["verify.sh has changed", "without --resume"]);
        expect(&crash(&[]), 0);
    }
}

#[test]
fn a_stop_in_a_later_test_keeps_what_the_earlier_ones_found() {
    let place = Place::new();
    place.write(
        "crashproof.toml",
        r#"
        [[test]]
        name = "wrong"
        program = "./pool append-early p 2"
        setup = "./pool create p"
        recover = "./pool verify p"
        strategy = "prefix"

        [[test]]
        name = "slow"
        program = "./pool append p 2"
        setup = "./pool create p"
        recover = "sleep 65"

        [[test]]
        name = "never"
        program = "./pool append p 2"
        "#,
    );
    let mut child = place
        .command()
        .args(["test", "--json", "all.json"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&place, &mut child, "sleep 65");
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    expect(&output, 2);
    let said = text(&output.stderr);
    for words in ["1 finding", "could not be done"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("all.json")).unwrap()).unwrap();
    assert_eq!(report["tests"][0]["crash"]["findings"][0]["kind"], "crash-order");
    assert_eq!(report["tests"][1]["name"], "slow");
    assert_eq!(report["tests"][1]["crash"], Value::Null);
    assert_eq!(report["tests"].as_array().unwrap().len(), 2);
    nothing_runs(&place);
}

#[test]
fn a_stop_in_a_later_set_up_keeps_what_the_earlier_ones_found() {
    let place = Place::new();
    place.write(
        "crashproof.toml",
        r#"
        [[test]]
        name = "right"
        program = "./pool append p 2"

        [[test]]
        name = "slow"
        program = "./pool append p 2"
        setup = "sleep 66"
        "#,
    );
    let mut child = place
        .command()
        .args(["test", "--json", "all.json"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    wait_for(&place, &mut child, "sleep 66");
    // As the terminal does: to the whole group.
    // SAFETY: a signal to processes that this test started and has not waited for.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    expect(&output, 2);
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("all.json")).unwrap()).unwrap();
    assert_eq!(report["tests"][0]["check"]["findings"], serde_json::json!([]));
    nothing_runs(&place);
}

/// The budget ends in the states of the program, or in those of its recoveries.
#[test]
fn a_test_of_depth_2_can_be_resumed() {
    let options = [
        "--recover",
        "./pool redo-early p",
        "--depth",
        "2",
        "--setup",
        "./pool create p",
    ];
    let program = ["./pool", "pair", "p", "2"];
    let place = Place::new();
    let whole = place.crash(1, &options, &program);
    let causes = |report: &Value| -> Vec<Value> { report["findings"].as_array().unwrap().iter().map(cause).collect() };
    let tested = whole["stats"]["states_tested"].as_u64().unwrap();
    for states in [5, tested - 5] {
        let limit = states.to_string();
        let part = place.crashproof(
            &[
                &["crash", "--jobs", "1", "--max-states", &limit],
                &options[..],
                &["--"],
                &program[..],
            ]
            .concat(),
        );
        assert!(matches!(part.status.code(), Some(0 | 1)), "{}", text(&part.stderr));
        let rest = place.crash(1, &[&["--resume"], &options[..]].concat(), &program);
        assert_eq!(
            rest["stats"]["states_tested"], whole["stats"]["states_tested"],
            "{states}"
        );
        assert_eq!(causes(&rest), causes(&whole), "{states}");
    }
}

/// The shared memory of a recording: its name is in the environment of the program.
fn session_of(recorder: &Child) -> PathBuf {
    let children = format!("/proc/{0}/task/{0}/children", recorder.id());
    let start = Instant::now();
    loop {
        let found = std::fs::read_to_string(&children).unwrap_or_default();
        // The program, or the keeper before it.
        let session = found.split_whitespace().find_map(|child| {
            let below = std::fs::read_to_string(format!("/proc/{child}/task/{child}/children")).unwrap_or_default();
            let environments = [child].into_iter().chain(below.split_whitespace()).map(|process| {
                let bytes = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            });
            environments.into_iter().find_map(|environment| {
                let variables: Vec<&str> = environment.split('\0').collect();
                let name = variables.iter().find_map(|v| v.strip_prefix("CRASHPROOF_SESSION="))?;
                Some(PathBuf::from(name))
            })
        });
        if let Some(session) = session {
            return session;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the program does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_recorder_that_is_killed_leaves_no_memory_behind_for_long() {
    let place = Place::new();
    let mut recorder = place
        .command()
        .args(["record", "-o", "killed", "--", "sleep", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let session = session_of(&recorder);
    assert!(session.exists());
    let program = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder.id())).unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    for process in program.split_whitespace() {
        // SAFETY: a plain system call; this is the program that was recorded.
        unsafe { libc::kill(process.parse().unwrap(), libc::SIGKILL) };
    }
    let next = place.crashproof(&["record", "-o", "next", "--", "true"]);
    assert!(place.path().join("next").exists(), "{next:?}");
    assert!(!session.exists(), "{} is left", session.display());
}
