//! `crashproof crash --oracle output` and `crashproof ops`: findings by what a driver prints, and drivers that are none.

use crate::support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{compile, crashproof, run, source, text};
use tempfile::TempDir;

const SETS: &str = "set 1 11\nget 1\nset 2 22\nset 1 33\nget 2\nset 3 44\nget 1\nget 3\n";

/// The driver, compiled once.
fn driver() -> &'static Path {
    static DRIVER: OnceLock<(TempDir, std::path::PathBuf)> = OnceLock::new();
    let (_, path) = DRIVER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("driver");
        compile("gcc", &["-g", "-O1", "-pthread", &source("oracle/driver.c")], &path);
        (folder, path)
    });
    path
}

fn line_of(text: &str) -> u64 {
    let source = std::fs::read_to_string(source("oracle/driver.c")).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() as u64 + 1
}

/// A folder with a file of operations, and what is wrong with the driver.
struct Place {
    folder: TempDir,
    wrong: &'static str,
}

impl Place {
    fn new(wrong: &'static str, operations: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ops"), operations).unwrap();
        Place { folder, wrong }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = crashproof();
        command
            .args(words)
            .current_dir(self.path())
            .env("WRONG", self.wrong)
            .env("XDG_STATE_HOME", self.path().join("state"));
        command
    }

    fn crash_command(&self, options: &[&str]) -> Command {
        self.crash_driver(driver(), options)
    }

    fn crash_driver(&self, driver: &Path, options: &[&str]) -> Command {
        let mut command = self.command(&["crash", "--oracle", "output", "--ops", "ops", "--json", "report.json"]);
        command.args(options).arg("--").arg(driver).arg("pool");
        command
    }

    fn crash(&self, status: i32, options: &[&str]) -> (Value, Output) {
        let output = run(&mut self.crash_command(options), status);
        let report = std::fs::read(self.path().join("report.json")).unwrap();
        (serde_json::from_slice(&report).unwrap(), output)
    }

    /// What an error says; nothing is left behind.
    fn error(&self, options: &[&str]) -> String {
        let output = run(&mut self.crash_command(options), 2);
        assert!(!self.path().join("pool").exists());
        text(&output.stderr)
            .replace('\n', " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn lines(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect()
}

#[test]
fn a_right_driver_is_clean() {
    let place = Place::new("", SETS);
    for strategy in ["prefix", "representative", "exhaustive", "random", "auto", "conditions"] {
        let (report, output) = place.crash(0, &["--strategy", strategy, "--max-states", "400"]);
        assert_eq!(report["findings"], serde_json::json!([]), "{strategy}");
        assert!(
            report["stats"]["states_tested"].as_u64().unwrap() >= 3,
            "{strategy}: {report:#}"
        );
        assert!(
            report["stats"]["oracle_runs"].as_u64().unwrap() >= 1,
            "{strategy}: {report:#}"
        );
        assert_eq!(text(&output.stdout), "", "what it prints is not shown");
        let without = text(&output.stderr).contains("`conditions` is left out");
        assert_eq!(
            without,
            ["auto", "conditions"].contains(&strategy),
            "{}",
            text(&output.stderr)
        );
    }
    assert!(!place.path().join("pool").exists(), "it was not there before");
}

/// What follows dependences is other code than what made the pool.
#[test]
fn a_pool_with_pointers_to_code_has_conditions_where_the_driver_makes_it() {
    let place = Place::new("code", SETS);
    let driver = place.path().join("driver");
    let mut compile = crashproof();
    compile.args(["cc", "--deps", "-g", "-O1", "-no-pie", "-pthread", "-o"]);
    run(compile.arg(&driver).arg(source("oracle/driver.c")), 0);
    let said = |output: &Output| text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    let own = said(&run(&mut place.crash_driver(&driver, &["--strategy", "conditions"]), 0));
    assert!(own.contains("it made its own") && !own.contains("left out"), "{own}");
    // One that is there cannot be made again.
    let mut create = Command::new(&driver);
    create
        .args(["pool", "--ops", "ops", "--to", "0"])
        .current_dir(place.path());
    run(create.env("WRONG", "code"), 0);
    let without = said(&run(&mut place.crash_driver(&driver, &[]), 0));
    assert!(without.contains("pointers to code"), "{without}");
    assert!(
        without.contains("dependences of the driver could not be recorded"),
        "{without}"
    );
}

/// Probing after each operation is an offer that a driver need not take.
#[test]
fn a_driver_that_refuses_a_second_probe_is_judged_all_the_same() {
    let place = Place::new("once", SETS);
    let (report, _) = place.crash(0, &["--strategy", "exhaustive"]);
    assert_eq!(report["findings"], serde_json::json!([]));
    assert!(report["stats"]["states_tested"].as_u64().unwrap() >= 3, "{report:#}");
}

#[test]
fn a_wrong_order_is_found_with_the_operation_and_both_oracles() {
    let place = Place::new("order", SETS);
    let (report, output) = place.crash(1, &[]);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    let (finding, crash) = (&findings[0], &findings[0]["crash"]);
    assert_eq!(finding["kind"], "crash-order");
    assert_eq!(finding["line"], line_of("// the value"));
    let operation = crash["operation"].as_u64().unwrap();
    assert_eq!(SETS.lines().nth(operation as usize), crash["operation_text"].as_str());
    assert!(crash["operation_text"].as_str().unwrap().starts_with("set"));
    let expected = crash["expected"].as_array().unwrap();
    assert_eq!(
        (&expected[0]["outcome"], &expected[1]["outcome"]),
        (&"done".into(), &"left out".into())
    );
    let (done, left_out, got) = (
        lines(&expected[0]["output"]),
        lines(&expected[1]["output"]),
        lines(&crash["got"]),
    );
    assert!(got != done && got != left_out && done != left_out);
    let first = crash["first_line"].as_u64().unwrap() as usize;
    assert!(got[first] != done[first] || got[first] != left_out[first]);
    let told = text(&output.stderr);
    for words in ["neither done nor left out", "done", "left out", "printed"] {
        assert!(told.contains(words), "{told}");
    }
    let replay = crash["replay"]["directory"].as_str().unwrap();
    let again = run(&mut place.command(&["crash", "--replay", replay]), 1);
    assert!(
        text(&again.stderr).contains("not the expected one"),
        "{}",
        text(&again.stderr)
    );
    // A process for each state is given the same arguments.
    let (started, _) = place.crash(1, &["--no-server", "--strategy", "representative"]);
    assert_eq!(
        started["findings"][0]["crash"]["operation"], crash["operation"],
        "{started:#}"
    );
}

#[test]
fn a_driver_that_crashes_after_a_crash_is_a_finding_of_the_operation() {
    let place = Place::new("faults", SETS);
    let (report, _) = place.crash(1, &[]);
    let crash = &report["findings"][0]["crash"];
    assert_eq!(
        (&crash["recovery"]["signal"], crash["operation"].is_u64()),
        (&11.into(), true),
        "{report:#}"
    );
    let place = Place::new("order", "set 1 11\nget 1\n");
    let (report, _) = place.crash(1, &["--suffix", "0"]);
    let crash = &report["findings"][0]["crash"];
    assert_eq!(
        (&crash["operation"], &crash["differs_at"]),
        (&0.into(), &Value::Null),
        "only the probe shows it"
    );
}

#[test]
fn data_that_nobody_would_miss_is_transient() {
    let place = Place::new("scratch", SETS);
    let (report, _) = place.crash(1, &["--performance"]);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    assert_eq!(findings[0]["kind"], "transient-data");
    assert_eq!(findings[0]["line"], line_of("never flushed, never read"));
    assert!(findings[0]["message"].as_str().unwrap().contains("changed nothing"));
    place.crash(0, &[]);
    // What is not flushed and would be missed is a crash finding only.
    let (report, _) = Place::new("", "push 1\npush 2\n").crash(1, &["--performance"]);
    let kinds = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| &finding["kind"]);
    assert!(
        kinds.clone().count() > 0 && kinds.clone().all(|kind| kind != "transient-data"),
        "{report:#}"
    );
}

/// Runs `crashproof test` on the driver with these keys.
fn test_of_a_driver(place: &Place, keys: &str, options: &[&str], status: i32) -> Value {
    test_of(driver(), place, keys, options, status)
}

fn test_of(driver: &Path, place: &Place, keys: &str, options: &[&str], status: i32) -> Value {
    let program = format!("program = [{:?}, \"pool\"]", driver.display().to_string());
    let test = format!("[[test]]\nname = \"driver\"\noracle = \"output\"\nops = \"ops\"\n{program}\n{keys}");
    std::fs::write(place.path().join("crashproof.toml"), test).unwrap();
    let mut command = place.command(&["test", "--json", "all.json"]);
    run(command.args(options), status);
    let all: Value = serde_json::from_slice(&std::fs::read(place.path().join("all.json")).unwrap()).unwrap();
    all["tests"][0].clone()
}

fn kinds(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["kind"].as_str().unwrap()).collect()
}

#[test]
fn a_driver_is_a_test_of_a_project() {
    let place = Place::new("order", SETS);
    let test = test_of_a_driver(&place, "suffix = 3\ncriterion = \"durable\"\n", &[], 1);
    assert_eq!(kinds(&test["crash"]), ["crash-order"]);
    assert_eq!(
        test["check"]["program"]["command"].as_array().unwrap()[1..],
        ["pool", "--ops", "ops", "--from", "0", "--to", "8"]
    );
    assert!(!place.path().join("pool").exists(), "neither step leaves it");
    let wrong = "[[test]]\nprogram = \"./driver pool\"\nops = \"ops\"\n";
    std::fs::write(place.path().join("crashproof.toml"), wrong).unwrap();
    let said = text(&run(&mut place.command(&["test"]), 2).stderr);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("do not go together") && words.contains("--oracle"),
        "{said}"
    );
    assert!(!words.contains("crashproof check"), "nothing runs: {said}");
}

/// What the crash test shows, the check knows: both have the same verdict.
#[test]
fn a_test_of_a_project_confirms_transient_data() {
    let place = Place::new("scratch", SETS);
    let without = test_of_a_driver(&place, "", &[], 1);
    assert_eq!(
        (kinds(&without["check"]), kinds(&without["crash"])),
        (vec!["missing-flush"], vec![])
    );
    // A pool that is there is what it was afterwards.
    run(
        Command::new(driver())
            .args(["pool", "--ops", "ops", "--to", "0"])
            .current_dir(place.path()),
        0,
    );
    let pool = || std::fs::read(place.path().join("pool")).unwrap();
    let before = pool();
    let with = test_of_a_driver(&place, "performance = true\n", &["--fail-on", "error"], 0);
    assert!(pool() == before);
    for report in [&with["check"], &with["crash"]] {
        assert_eq!(kinds(report), ["transient-data"], "{report:#}");
        assert_eq!(report["findings"][0]["line"], line_of("never flushed, never read"));
        assert_eq!(report["findings"][0]["severity"], "note");
        assert!(
            report["findings"][0]["message"]
                .as_str()
                .unwrap()
                .contains("changed nothing")
        );
    }
    // An [[ignore]] is for both, too.
    let ignored = "performance = true\n[[ignore]]\nkind = \"transient-data\"\nreason = \"scratch\"\n";
    let ignored = test_of_a_driver(&place, ignored, &[], 0);
    assert_eq!((kinds(&ignored["check"]), kinds(&ignored["crash"])), (vec![], vec![]));
    // What would be missed stays an error.
    let place = Place::new("", "push 1\npush 2\n");
    let missed = test_of_a_driver(&place, "performance = true\n", &["--fail-on", "error"], 1);
    assert!(kinds(&missed["check"]).contains(&"missing-flush"), "{missed:#}");
    assert!(!kinds(&missed["check"]).contains(&"transient-data"), "{missed:#}");
}

#[test]
fn buffered_operations_may_be_lost_up_to_the_last_sync() {
    let pushes = "push 1\npush 2\nsync\npush 3\npush 4\npush 5\n";
    let place = Place::new("", pushes);
    let (report, _) = place.crash(1, &["--strategy", "exhaustive"]);
    assert_ne!(report["findings"], serde_json::json!([]), "not durable");
    let buffered = |place: &Place, status, criterion| {
        place
            .crash(status, &["--strategy", "exhaustive", "--criterion", criterion])
            .0
    };
    buffered(&place, 0, "buffered=100");
    buffered(&place, 0, "buffered=100,sync");
    buffered(&place, 1, "buffered=1");
    let unsynced = Place::new("unsynced", pushes);
    buffered(&unsynced, 0, "buffered=100");
    buffered(&unsynced, 1, "buffered=100,sync");
}

#[test]
fn what_is_no_driver_is_told_why() {
    let with = |wrong, words: &str| {
        let error = Place::new(wrong, SETS).error(&[]);
        assert!(error.contains(words), "{wrong}: {error}");
    };
    with("ignores", "printed 8 lines when it was asked for no operation");
    with("silent", "printed nothing to its standard output for 8 operations");
    with("extra", "printed 16 lines for 8 operations");
    with("buffered", "lines of operations 0 and 1 with one write");
    with("fork", "starts other processes");
    with("threads", "with 5 threads");
    with("dies", "was ended by signal 6 when it had to create its pool");
    with("unmade", "did not create its pool");
    with("unprobed", "has to print the line \"probe\"");
}

/// Only after some crashes, so that nothing shows it before.
#[test]
fn a_recovery_that_prints_is_refused_with_its_line() {
    let error = Place::new("talks", SETS).error(&["--strategy", "exhaustive"]);
    assert!(
        error.contains("the recovery of the driver prints \"recovering cell\" to its standard output"),
        "{error}"
    );
}

fn with_header(place: &Place, name: &str, defines: &[&str]) -> std::path::PathBuf {
    let path = place.path().join("driver");
    let include = format!("-I{}/../../include", env!("CARGO_MANIFEST_DIR"));
    let file = source(&format!("oracle/{name}.c"));
    compile("gcc", &[&["-g", "-O1", &include, &file], defines].concat(), &path);
    path
}

/// With the header, results have a descriptor of their own.
#[test]
fn what_else_a_driver_with_the_header_prints_does_not_count() {
    let place = Place::new("", SETS);
    let driver = with_header(&place, "talking", &[]);
    let options = ["--strategy", "exhaustive"];
    let clean = run(&mut place.crash_driver(&driver, &options), 0);
    assert!(text(&clean.stderr).contains("setting 1\n"), "{}", text(&clean.stderr));
    let native = Command::new(&driver)
        .args(["native", "--ops", "ops"])
        .current_dir(place.path())
        .output();
    let native = native.unwrap();
    assert_eq!(text(&native.stdout), "ok\n11\nok\nok\n22\nok\n33\n44\n");
    assert!(
        text(&native.stderr).contains("made a pool\n"),
        "{}",
        text(&native.stderr)
    );
    let driver = with_header(&place, "talking", &["-DBUG_ORDER"]);
    run(&mut place.crash_driver(&driver, &options), 1);
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("report.json")).unwrap()).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    assert_eq!(findings[0]["crash"]["got"][0], "0", "{report:#}");
}

/// The header marks operations: their ends expect nothing of data that the crash test has shown to be volatile.
#[test]
fn the_end_of_an_operation_may_leave_volatile_data_behind() {
    let place = Place::new("", SETS);
    let driver = with_header(&place, "talking", &["-DHINT"]);
    let without = test_of(&driver, &place, "", &[], 1);
    assert_eq!(kinds(&without["check"]), ["expect-durable", "missing-flush"]);
    let with = test_of(&driver, &place, "performance = true\n", &["--fail-on", "error"], 0);
    assert_eq!(kinds(&with["check"]), ["transient-data"]);
}

#[test]
fn the_creation_of_a_pool_is_crashed_if_asked_for() {
    let place = Place::new("", SETS);
    let crash = |driver: &Path, options: &[&str], status| {
        let output = run(&mut place.crash_driver(driver, options), status);
        assert!(!place.path().join("pool").exists());
        let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("report.json")).unwrap()).unwrap();
        (report, text(&output.stderr))
    };
    for (define, words) in [
        (
            "-DBUG_CREATION",
            "which fits neither an empty structure nor operation 0 (set 1 11) done",
        ),
        (
            "-DBUG_REFUSES",
            "the crash was in the creation of the pool or in operation 0 (set 1 11)",
        ),
    ] {
        let driver = with_header(&place, "creation", &[define]);
        crash(&driver, &[], 0);
        for strategy in ["prefix", "auto", "exhaustive"] {
            let (report, _) = crash(&driver, &["--crash-creation", "--strategy", strategy], 1);
            let finding = &report["findings"][0];
            let message = finding["message"].as_str().unwrap();
            assert!(message.contains(words), "{strategy}: {message}");
            assert_eq!(finding["crash"]["creation"], true);
        }
    }
    let driver = with_header(&place, "creation", &[]);
    for strategy in ["prefix", "auto", "exhaustive"] {
        let (report, _) = crash(&driver, &["--crash-creation", "--strategy", strategy], 0);
        assert_eq!(report["findings"], serde_json::json!([]), "{strategy}");
    }
    std::fs::write(place.path().join("pool"), "mine").unwrap();
    let refused = run(&mut place.crash_driver(&driver, &["--crash-creation"]), 2);
    assert!(text(&refused.stderr).contains("pool is there already"));
    assert_eq!(std::fs::read(place.path().join("pool")).unwrap(), b"mine");
}

/// A pool that was there before is what it was, or its content is kept and named.
#[test]
fn a_pool_of_the_users_survives_what_ends_the_test() {
    let mut place = Place::new("waits", SETS);
    let pool = place.path().join("pool");
    let mut make = Command::new(driver());
    run(
        make.arg(&pool)
            .args(["--ops", "ops", "--from", "0", "--to", "5"])
            .current_dir(place.path()),
        0,
    );
    let content = std::fs::read(&pool).unwrap();
    let stop = |signal: i32| {
        let waiting = place.path().join("waiting");
        let _ = std::fs::remove_file(&waiting);
        let mut child = place.crash_command(&[]).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !waiting.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "the driver was not started");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(std::fs::read(&pool).unwrap(), content);
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait().unwrap().code()
    };
    assert_eq!(stop(libc::SIGTERM), Some(2));
    assert_eq!(std::fs::read(&pool).unwrap(), content);
    assert_eq!(stop(libc::SIGKILL), None);
    assert_ne!(std::fs::read(&pool).unwrap(), content);
    place.wrong = "";
    let error = text(&run(&mut place.crash_command(&[]), 2).stderr);
    let error: String = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, saved) = error.split_once("what it was before is in ").expect(&error);
    let (saved, _) = saved.split_once(": move that to the pool").expect(&error);
    std::fs::rename(saved, &pool).unwrap();
    assert_eq!(std::fs::read(&pool).unwrap(), content);
    place.crash(0, &["--max-states", "20"]);
    assert_eq!(std::fs::read(&pool).unwrap(), content);
}

/// Neither is it lost if it cannot be put back.
#[test]
fn a_pool_that_cannot_be_put_back_is_kept() {
    let place = Place::new("", SETS);
    let (pool, driver) = (place.path().join("pool"), place.path().join("driver"));
    std::fs::write(&pool, "mine").unwrap();
    std::fs::write(&driver, "#!/bin/sh\nrm -f pool && mkdir pool\nexit 1\n").unwrap();
    std::fs::set_permissions(&driver, Permissions::from_mode(0o755)).unwrap();
    let error = text(&run(&mut place.crash_driver(&driver, &[]), 2).stderr);
    let error: String = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, saved) = error.split_once("that is in ").expect(&error);
    let (saved, _) = saved.split_once(", copy it back").expect(&error);
    assert_eq!(std::fs::read(saved).unwrap(), b"mine");
}

#[test]
fn operations_whose_output_cannot_be_judged_are_refused_by_name() {
    let refused = |operation: &str, words: &str| {
        let error = Place::new("", &format!("set 1 2\n{operation}\n")).error(&[]);
        assert!(
            error.contains(words) && error.contains(&format!("operation 1 ({operation})")),
            "{error}"
        );
    };
    refused("time", "not the same each time");
    refused("where", "depends on where its pool is mapped");
    refused("space", "or on what else is allocated in it");
}

#[test]
fn a_malformed_operation_is_the_drivers_to_tell() {
    let place = Place::new("", "set 1 2\nfrob 3\nget 1\n");
    let error = place.error(&[]);
    assert!(error.contains("ops:2: 'frob 3' is no operation"), "{error}");
    assert!(
        error.contains("exited with status 2 when it did all operations"),
        "{error}"
    );
    let error = Place::new("", "").error(&[]);
    assert!(error.contains("ops has no operations"), "{error}");
    std::fs::remove_file(place.path().join("ops")).unwrap();
    assert!(place.error(&[]).contains("cannot read the operations ops"));
}

#[test]
fn the_command_line_is_looked_at() {
    let place = Place::new("", SETS);
    assert!(place.error(&["--depth", "2"]).contains("--depth 2"));
    let refused = |words: &[&str], why: &str| {
        let output = run(&mut place.command(words), 2);
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    };
    refused(&["crash", "--oracle", "output", "--", "./d", "pool"], "--ops");
    refused(
        &["crash", "--oracle", "output", "--ops", "ops", "--", "./d"],
        "-- DRIVER POOL",
    );
    refused(
        &[
            "crash", "--oracle", "output", "--ops", "ops", "--", "./d", "pool", "--probe",
        ],
        "appends --probe itself",
    );
    for (option, wrong) in [
        ("--criterion", "buffered=x"),
        ("--criterion", "lax"),
        ("--suffix", "some"),
    ] {
        refused(
            &[
                "crash", "--oracle", "output", "--ops", "ops", option, wrong, "--", "./d", "pool",
            ],
            wrong,
        );
    }
}

#[test]
fn operations_are_generated_and_shrunk() {
    let place = Place::new("order", "");
    let few = [
        "ops",
        "generate",
        "--count",
        "60",
        "--keys",
        "1..9",
        "--op",
        "set {insert} {value}=3",
        "--op",
        "get {used}=2",
    ];
    let generated = run(&mut place.command(&few), 0);
    assert_eq!(generated.stdout, run(&mut place.command(&few), 0).stdout, "seeded");
    assert_eq!(text(&generated.stdout).lines().count(), 60);
    let sparse = [
        "ops",
        "generate",
        "--count",
        "60",
        "--keys",
        "sparse=9",
        "--op",
        "set {insert} {value}=1",
    ];
    let sparse = text(&run(&mut place.command(&sparse), 0).stdout);
    let keys: std::collections::BTreeSet<&str> = sparse.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(keys.len(), 9, "{sparse}");
    assert!(keys.iter().all(|key| key.parse::<u64>().unwrap() > 1 << 32), "{sparse}");
    std::fs::write(place.path().join("ops"), &generated.stdout).unwrap();
    let words = ["ops", "shrink", "-o", "few", "ops", "--"];
    run(place.command(&words).arg(driver()).arg("pool"), 0);
    let few = std::fs::read_to_string(place.path().join("few")).unwrap();
    assert_eq!(few.lines().count(), 1, "{few}");
    assert!(few.starts_with("set "), "{few}");
    let right = Place::new("", SETS);
    let told = run(right.command(&words).arg(driver()).arg("pool"), 1);
    assert!(text(&told.stderr).contains("does not fail"), "{}", text(&told.stderr));
    let wrong = run(&mut place.command(&["ops", "generate", "--op", "get {usd}=1"]), 2);
    assert!(text(&wrong.stderr).contains("{usd}"), "{}", text(&wrong.stderr));
}
