//! `crashproof crash`, `test` and `init` on a small program: the contract, each option, what can go wrong, and interruptions.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{compile, source, text};
use tempfile::TempDir;

/// A folder with the program and an empty pool, in which crashproof runs.
struct Place {
    folder: TempDir,
}

/// Compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        compile(
            "gcc",
            &["-g", "-O1", "-Wall", "-Wextra", &source("crash/pool.c")],
            &path,
        );
        (folder, path)
    });
    path
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(program(), folder.path().join("pool")).unwrap();
        let place = Place { folder };
        let created = Command::new("./pool")
            .args(["create", "p"])
            .current_dir(place.path())
            .status();
        assert!(created.unwrap().success());
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self) -> Command {
        let mut command = support::crashproof();
        command
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env_remove("COLUMNS");
        command
    }

    fn crashproof(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("crashproof runs")
    }

    /// The report of `crash` with these options; it must exit with the status.
    fn crash(&self, status: i32, options: &[&str], program: &[&str]) -> Value {
        let mut arguments = vec!["crash", "--json", "-", "--jobs", "1"];
        arguments.extend(options);
        arguments.push("--");
        arguments.extend(program);
        let output = self.crashproof(&arguments);
        expect(&output, status);
        // What the program prints goes there, too.
        let json = output
            .stdout
            .iter()
            .position(|&byte| byte == b'{')
            .expect("JSON on stdout");
        serde_json::from_slice(&output.stdout[json..]).unwrap()
    }

    /// What tests keep to be resumed.
    fn state(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.path().join("state/crashproof/crash"));
        folders.map_or_else(
            |_| Vec::new(),
            |folders| folders.map(|folder| folder.unwrap().path()).collect(),
        )
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path().join(name), content).unwrap();
    }

    fn script(&self, name: &str, content: &str) {
        self.write(name, content);
        let path = self.path().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[track_caller]
fn expect(output: &Output, status: i32) {
    assert_eq!(
        output.status.code(),
        Some(status),
        "stdout: {}\nstderr: {}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[track_caller]
fn expect_words(output: &Output, words: &[&str]) {
    // Texts are wrapped.
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {}", text(&output.stderr));
    }
}

const VERIFY: [&str; 2] = ["--recover", "./pool verify p"];
const APPEND: [&str; 4] = ["./pool", "append", "p", "3"];
const APPEND_EARLY: [&str; 4] = ["./pool", "append-early", "p", "3"];

fn line_of(text: &str) -> u64 {
    let source = std::fs::read_to_string(source("crash/pool.c")).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() as u64 + 1
}

#[test]
fn a_right_program_is_clean() {
    let place = Place::new();
    let before = std::fs::read(place.path().join("p")).unwrap();
    for strategy in ["prefix", "exhaustive", "dpor", "random"] {
        std::fs::write(place.path().join("p"), &before).unwrap();
        let options = [&VERIFY[..], &["--strategy", strategy, "--max-states", "5000"]].concat();
        let report = place.crash(0, &options, &APPEND);
        assert_eq!(report["findings"], serde_json::json!([]), "{strategy}");
        assert_eq!(report["stats"]["strategy"], strategy);
        assert!(report["stats"]["states_tested"].as_u64().unwrap() > 3, "{report:#}");
        assert_eq!(report["program"]["status"], 0);
        assert_eq!(report["trace"]["complete"], true);
    }
    assert!(!place.path().join("crashproof-crashes").exists(), "nothing failed");
    assert_eq!(place.state(), [] as [PathBuf; 0], "the tests are done");
}

#[test]
fn a_wrong_program_is_explained_and_replayed() {
    let place = Place::new();
    let report = place.crash(1, &VERIFY, &APPEND_EARLY);
    let findings = report["findings"].as_array().unwrap();
    let order = findings.iter().find(|finding| finding["kind"] == "crash-order");
    let finding = order.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(finding["severity"], "error");
    assert!(finding["file"].as_str().unwrap().ends_with("pool.c"));
    assert_eq!(finding["function"], "write_entry");
    let crash = &finding["crash"];
    assert_eq!(crash["depth"], 1);
    assert!(crash["after"]["line"].is_u64());
    assert_eq!(crash["persisted"][0]["line"], line_of("pool->count = index + 1;"));
    assert_eq!(crash["missing"][0]["function"], "write_entry");
    assert_eq!(crash["recovery"]["status"], 3);
    assert_eq!(crash["recovery"]["signal"], Value::Null);
    assert_eq!(crash["recovery"]["timeout"], false);
    assert!(
        crash["recovery"]["stderr"]
            .as_str()
            .unwrap()
            .contains("counted and not there")
    );
    assert!(crash["states"].as_u64().unwrap() >= 1);
    assert_eq!(
        finding["order"][0]["after"]["line"],
        line_of("pool->count = index + 1;")
    );
    assert_eq!(finding["order"][0]["before"]["function"], "write_entry");
    let stats = &report["stats"];
    for key in ["states_total", "states_tested", "states_pruned"] {
        assert!(stats[key].is_u64(), "{key}: {stats:#}");
    }
    assert!(stats["seconds"].is_f64() && stats["states_failed"].as_u64().unwrap() >= 1);

    let folder = crash["replay"]["directory"].as_str().unwrap();
    assert!(
        crash["replay"]["command"]
            .as_str()
            .unwrap()
            .starts_with("crashproof crash --replay ")
    );
    let replay = place.crashproof(&["crash", "--replay", folder]);
    expect(&replay, 1);
    expect_words(&replay, &["counted and not there", "status 3"]);

    // Mended, it recovers from the very same image.
    place.script("pool", "#!/bin/sh\nexit 0\n");
    expect(&place.crashproof(&["crash", "--replay", folder]), 0);
    let nothing = place.crashproof(&["crash", "--replay", "no/such/folder"]);
    expect(&nothing, 2);
    expect_words(&nothing, &["no/such/folder"]);
}

#[test]
fn every_strategy_finds_it_and_a_trace_gives_the_same() {
    let place = Place::new();
    expect(
        &place.crashproof(&[
            "record",
            "--client-requests",
            "off",
            "-o",
            "t",
            "--",
            "./pool",
            "append-early",
            "p",
            "3",
        ]),
        0,
    );
    let mut causes = Vec::new();
    for strategy in ["prefix", "exhaustive", "dpor", "random"] {
        let output = place.crashproof(&[
            "crash",
            "--strategy",
            strategy,
            "--max-states",
            "2000",
            "--json",
            "-",
            "--recover",
            "./pool verify p",
            "t",
        ]);
        expect(&output, 1);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let order = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["kind"] == "crash-order");
        causes.push(cause(order.unwrap_or_else(|| panic!("{strategy}: {report:#}"))));
    }
    causes.dedup();
    assert_eq!(causes.len(), 1, "{causes:?}");
}

#[test]
fn what_recovery_cannot_do_without_a_crash_is_no_finding() {
    let place = Place::new();
    // The file is made by the program: there is none at first.
    std::fs::remove_file(place.path().join("p")).unwrap();
    let output = place.crashproof(&["crash", "--recover", "./pool verify p", "--", "./pool", "create", "p"]);
    expect(&output, 2);
    expect_words(&output, &["before", "--setup", "--from", "p is no pool"]);
    // The final image is wrong for it.
    let place = Place::new();
    let output = place.crashproof(&[
        "crash",
        "--recover",
        "./pool redo p",
        "--check",
        "false",
        "--",
        "./pool",
        "append",
        "p",
        "3",
    ]);
    expect(&output, 2);
    expect_words(&output, &["false"]);
    // It never ends.
    let output = place.crashproof(&[
        "crash",
        "--timeout",
        "300ms",
        "--recover",
        "sleep 60",
        "--",
        "./pool",
        "append",
        "p",
        "3",
    ]);
    expect(&output, 2);
    expect_words(&output, &["300ms", "--timeout"]);
    assert_eq!(
        place.state(),
        [] as [PathBuf; 0],
        "nothing was tested: there is nothing to resume"
    );
}

#[test]
fn what_cannot_be_done_is_told_with_the_remedy() {
    let place = Place::new();
    let cases: [(&[&str], &[&str], &[&str]); 9] = [
        (
            &["--recover", "./no-such p"],
            &APPEND,
            &["./no-such", "there is no program"],
        ),
        (&["--recover", "./p"], &APPEND, &["not executable", "chmod"]),
        (&["--recover", ""], &APPEND, &["--recover is empty"]),
        (&["--recover", "./pool 'verify"], &APPEND, &["nothing closes"]),
        (
            &["--recover", "true", "--setup", "echo hello; exit 7"],
            &APPEND,
            &["hello", "exited with status 7"],
        ),
        (
            &["--recover", "true", "--expect-output", "no-file"],
            &APPEND,
            &["no-file"],
        ),
        (
            &["--recover", "true"],
            &["./pool", "append", "nothing"],
            &["exited with status 2", "crashproof record"],
        ),
        (&["--recover", "true"], &["true"], &["stored nothing", "--pm"]),
        (
            &["--recover", "true", "--from", "no_such_function"],
            &APPEND,
            &["no_such_function"],
        ),
    ];
    for (options, program, words) in cases {
        let arguments = [&["crash"], options, &["--"], program].concat();
        let output = place.crashproof(&arguments);
        expect(&output, 2);
        expect_words(&output, words);
    }
    let output = place.crashproof(&["crash", "--recover", "true", "no-such.trace"]);
    expect(&output, 2);
    expect_words(&output, &["no-such.trace"]);
    let output = place.crashproof(&[&["crash", "--resume"], &VERIFY[..], &["--"], &APPEND].concat());
    expect(&output, 2);
    expect_words(&output, &["nothing to resume"]);
}

#[test]
fn an_incomplete_trace_is_not_clean() {
    let place = Place::new();
    expect(
        &place.crashproof(&[&["record", "-o", "t", "--"], &APPEND[..]].concat()),
        0,
    );
    let whole = std::fs::read(place.path().join("t")).unwrap();
    std::fs::write(place.path().join("t"), &whole[..whole.len() - 10]).unwrap();
    let output = place.crashproof(&["crash", "--recover", "./pool verify p", "t"]);
    expect(&output, 2);
    expect_words(&output, &["trace is incomplete"]);
}

#[test]
fn set_up_and_the_window_leave_the_creation_out() {
    let place = Place::new();
    std::fs::remove_file(place.path().join("p")).unwrap();
    let report = place.crash(0, &[&VERIFY[..], &["--setup", "./pool create p"]].concat(), &APPEND);
    let all = report["stats"]["states_total"].as_u64().unwrap();
    let set_up = [
        "--setup",
        "./pool create p",
        "--from",
        "write_entry",
        "--until",
        "count_entry",
    ];
    let report = place.crash(0, &[&VERIFY[..], &set_up].concat(), &APPEND);
    let some = report["stats"]["states_total"].as_u64().unwrap();
    assert!(some > 0 && some < all, "{some} of {all}");
    // Creation and all, in one program: the window begins after it.
    place.write("both.sh", "./pool create p && ./pool append p 3\n");
    std::fs::remove_file(place.path().join("p")).unwrap();
    place.crash(
        0,
        &[&VERIFY[..], &["--from", "write_entry"]].concat(),
        &["sh", "both.sh"],
    );
}

#[test]
fn a_hang_is_a_finding() {
    let place = Place::new();
    let options = [
        "--recover",
        "./pool verify-or-hang p",
        "--timeout",
        "200ms",
        "--strategy",
        "prefix",
    ];
    let report = place.crash(1, &options, &["./pool", "append-early", "p", "1"]);
    assert_eq!(
        report["findings"][0]["crash"]["recovery"]["timeout"], true,
        "{report:#}"
    );
    assert_eq!(report["findings"][0]["crash"]["recovery"]["status"], Value::Null);
}

#[test]
fn a_checker_sees_what_was_acknowledged() {
    let place = Place::new();
    let options = [&VERIFY[..], &["--check", "./pool acknowledged p"]].concat();
    let report = place.crash(1, &options, &["./pool", "append-ack", "p", "3"]);
    let finding = &report["findings"][0];
    assert_eq!(finding["kind"], "crash-durability", "{report:#}");
    assert_eq!(finding["crash"]["recovery"]["command"], "./pool acknowledged p");
    assert_eq!(finding["crash"]["recovery"]["status"], 4);
    assert_eq!(finding["function"], "count_entry");
    // Without the checker nothing is wrong with it.
    let place = Place::new();
    place.crash(0, &VERIFY, &["./pool", "append-ack", "p", "3"]);
}

#[test]
fn expected_output_is_compared() {
    let place = Place::new();
    place.write("right", "verified\n");
    place.write("wrong", "verified");
    let right = [&VERIFY[..], &["--expect-output", "right"]].concat();
    place.crash(0, &right, &APPEND);
    let wrong = [&["crash"], &VERIFY[..], &["--expect-output", "wrong", "--"], &APPEND].concat();
    let output = place.crashproof(&wrong);
    expect(&output, 2);
    expect_words(&output, &["expected"]);
}

#[test]
fn a_shell_command_and_a_process_per_state_give_the_same() {
    let place = Place::new();
    let expected = place.crash(1, &[&VERIFY[..], &["--strategy", "prefix"]].concat(), &APPEND_EARLY);
    for options in [
        &["--recover", "./pool verify p && true"][..],
        &["--recover", "./pool verify p", "--no-server"],
    ] {
        let place = Place::new();
        let report = place.crash(1, &[options, &["--strategy", "prefix"]].concat(), &APPEND_EARLY);
        assert_eq!(
            cause(&report["findings"][0]),
            cause(&expected["findings"][0]),
            "{options:?}"
        );
    }
}

#[test]
fn what_cannot_be_watched_is_put_back_all_the_same() {
    let place = Place::new();
    for (program, status) in [(APPEND, 0), (APPEND_EARLY, 1)] {
        let options = [
            "crash",
            "--jobs",
            "1",
            "--setup",
            "./pool create p",
            "--recover",
            "./pool verify-unseen p",
        ];
        let output = place.crashproof(&[&options[..], &["--"], &program].concat());
        expect(&output, status);
        expect_words(&output, &["in a way that cannot be watched"]);
    }
}

#[test]
fn models_and_limits() {
    let place = Place::new();
    let fresh = std::fs::read(place.path().join("p")).unwrap();
    let total = |options: &[&str]| {
        std::fs::write(place.path().join("p"), &fresh).unwrap();
        let report = place.crash(
            0,
            &[&VERIFY[..], &["--strategy", "exhaustive"], options].concat(),
            &APPEND,
        );
        report["stats"].clone()
    };
    let states = |stats: &Value| stats["states_total"].as_u64().unwrap();
    let plain = total(&[]);
    assert_eq!(plain["cut_short"], false);
    assert!(states(&total(&["--reorder-in-line"])) > states(&plain));
    assert!(states(&total(&["--model", "eadr"])) > 0);
    assert!(states(&total(&["--no-tear"])) <= states(&plain));
    let few = total(&["--max-states", "3"]);
    assert_eq!(few["cut_short"], true);
    assert!(few["states_tested"].as_u64().unwrap() <= 4, "{few:#}");
    total(&[
        "--memory", "256M", "--disk", "16M", "--time", "1h", "--seed", "3", "--pm", "p",
    ]);
    total(&["--keep-trace", "kept", "--locked-rmw"]);
    assert!(place.path().join("kept").exists());
}

#[test]
fn sarif_and_places_to_save() {
    let place = Place::new();
    let report = place.crash(
        1,
        &[&VERIFY[..], &["--sarif", "out.sarif", "--save", "here"]].concat(),
        &APPEND_EARLY,
    );
    let sarif: Value = serde_json::from_slice(&std::fs::read(place.path().join("out.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "crash-order");
    let folder = report["findings"][0]["crash"]["replay"]["directory"].as_str().unwrap();
    assert!(
        place.path().join(folder).starts_with(place.path().join("here")),
        "{folder}"
    );
    assert!(place.path().join(folder).is_dir());
}

#[test]
fn findings_can_be_ignored() {
    let place = Place::new();
    place.write(
        "crashproof.toml",
        "[[ignore]]\nfunction = \"write_entry\"\nreason = \"known\"\n",
    );
    place.crash(0, &VERIFY, &APPEND_EARLY);
    let place = Place::new();
    place.write(
        "other.toml",
        "[[ignore]]\nkind = \"crash-durability\"\nreason = \"none\"\n",
    );
    let report = place.crash(1, &[&VERIFY[..], &["--config", "other.toml"]].concat(), &APPEND_EARLY);
    assert!(
        report["warnings"][0].as_str().unwrap().contains("crash-durability"),
        "{report:#}"
    );
}

#[test]
fn a_crash_of_the_recovery() {
    let pair = ["./pool", "pair", "p", "2"];
    let place = Place::new();
    place.crash(0, &["--recover", "./pool redo-early p"], &pair);
    let place = Place::new();
    let report = place.crash(1, &["--recover", "./pool redo-early p", "--depth", "2"], &pair);
    let finding = &report["findings"][0];
    assert_eq!(finding["crash"]["depth"], 2, "{report:#}");
    assert_eq!(finding["crash"]["recovery"]["status"], 5);
    assert!(
        finding["stack"]
            .as_array()
            .unwrap()
            .iter()
            .any(|frame| frame["function"] == "redo"),
        "{finding:#}"
    );
    assert!(finding["message"].as_str().unwrap().contains("recovery"), "{finding:#}");
    let place = Place::new();
    place.crash(0, &["--recover", "./pool redo p", "--depth", "2"], &pair);
}

/// Processes that have the place in their environment: crashproof, its sandboxes, and what runs in them.
fn running(place: &Place) -> Vec<String> {
    let mark = place.path().display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        if text(&environment).contains(&mark) {
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            found.push(format!("{}: {}", path.display(), text(&command).replace('\0', " ")));
        }
    }
    found
}

fn nothing_runs(place: &Place) {
    let start = Instant::now();
    while !running(place).is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "left running: {:?}",
            running(place)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a slow test in the background and waits until it has tested something.
fn start_slow(place: &Place, options: &[&str]) -> std::process::Child {
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

/// What a finding is, wherever the program lies.
fn cause(finding: &Value) -> Value {
    let order = finding["order"].as_array().cloned().unwrap_or_default();
    let order: Vec<Value> = order
        .iter()
        .map(|pair| serde_json::json!([pair["before"]["line"], pair["after"]["line"]]))
        .collect();
    serde_json::json!([finding["kind"], finding["line"], order])
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
    // Not the command line that says so.
    let recovers = |process: &String| process.contains("sleep 60") && !process.contains("--recover");
    while !running(&place).iter().any(recovers) {
        assert!(start.elapsed() < Duration::from_secs(60), "the recovery does not start");
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a signal to a process that this test started and has not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    expect(&output, 2);
    expect_words(&output, &["interrupted before anything was tested"]);
    assert!(start.elapsed() < Duration::from_secs(50), "it waited for the recovery");
    nothing_runs(&place);
    assert_eq!(place.state(), [] as [PathBuf; 0]);
}

#[test]
fn a_project_is_tested_without_arguments() {
    let place = Place::new();
    let missing = place.crashproof(&["test"]);
    expect(&missing, 2);
    expect_words(&missing, &["crashproof init"]);

    expect(&place.crashproof(&["init"]), 0);
    let none = place.crashproof(&["test"]);
    expect(&none, 2);
    expect_words(&none, &["describes no [[test]]"]);
    let again = place.crashproof(&["init"]);
    expect(&again, 2);
    expect_words(&again, &["--force"]);
    expect(&place.crashproof(&["init", "--force"]), 0);

    place.write(
        "crashproof.toml",
        r#"
        [[test]]
        name = "right"
        program = "./pool append p 2"
        setup = "./pool create p"
        recover = "./pool verify p"
        strategy = "prefix"
        jobs = 1

        [[test]]
        name = "wrong"
        program = ["./pool", "append-early", "p", "2"]
        setup = "./pool create p"
        recover = "./pool verify p"
        strategy = "prefix"
        jobs = 1

        [[test]]
        name = "checked"
        program = "./pool append p 1"
        setup = "./pool create p"
        "#,
    );
    let output = place.crashproof(&["test", "--json", "all.json"]);
    expect(&output, 1);
    expect_words(
        &output,
        &[
            "$ ./pool create p $ crashproof check -- ./pool append p 2",
            "$ crashproof crash --recover './pool verify p' --setup './pool create p' --strategy prefix",
        ],
    );
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("all.json")).unwrap()).unwrap();
    let names: Vec<&Value> = report["tests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|test| &test["name"])
        .collect();
    assert_eq!(names, ["right", "wrong", "checked"]);
    assert_eq!(report["tests"][0]["check"]["findings"], serde_json::json!([]));
    assert_eq!(report["tests"][0]["crash"]["findings"], serde_json::json!([]));
    assert_eq!(report["tests"][1]["crash"]["findings"][0]["kind"], "crash-order");
    assert_eq!(report["tests"][2]["crash"], Value::Null);
    expect(&place.crashproof(&["test", "right", "checked"]), 0);
    let unknown = place.crashproof(&["test", "no-such"]);
    expect(&unknown, 2);
    expect_words(&unknown, &["no-such", "right, wrong, checked"]);

    place.write("crashproof.toml", "[[test]]\nprogram = \"./pool\"\nrecovery = \"x\"\n");
    let wrong = place.crashproof(&["test"]);
    expect(&wrong, 2);
    expect_words(&wrong, &["line 3", "recovery"]);
}
