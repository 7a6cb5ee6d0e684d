//! The command line on hand-made traces: statuses, outputs, filters. No program is recorded here.

use crate::support;

use std::process::{Command, Output};

use serde_json::Value;
use support::made::{BUGGY, CLEAN, Made};
use tempfile::TempDir;

/// Runs crashproof in the folder.
fn crashproof(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashproof"));
    command
        .args(arguments)
        .current_dir(folder.path())
        .env_remove("CRASHPROOF_RUNTIME")
        .env_remove("COLUMNS");
    command.output().expect("crashproof runs")
}

fn status(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {}", stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn clean_is_0_and_findings_are_1() {
    let folder = tempfile::tempdir().unwrap();
    CLEAN.write(&folder, "clean.trace");
    BUGGY.write(&folder, "buggy.trace");
    let clean = crashproof(&folder, &["check", "clean.trace"]);
    assert_eq!(status(&clean), 0, "{}", stderr(&clean));
    assert!(
        stderr(&clean).contains("no findings; ./made exited with status 0"),
        "{}",
        stderr(&clean)
    );
    let buggy = crashproof(&folder, &["check", "buggy.trace"]);
    assert_eq!(status(&buggy), 1, "{}", stderr(&buggy));
    assert!(stderr(&buggy).contains("error[missing-flush]"), "{}", stderr(&buggy));
    assert_eq!(stdout(&buggy), "", "the report goes to stderr");
    assert!(!stderr(&buggy).contains('\x1b'), "no colours into a pipe");
}

#[test]
fn an_incomplete_trace_is_not_clean() {
    let folder = tempfile::tempdir().unwrap();
    Made {
        incomplete: Some("the ring was too small"),
        ..CLEAN
    }
    .write(&folder, "clean.trace");
    let clean = crashproof(&folder, &["check", "clean.trace"]);
    assert_eq!(status(&clean), 2, "{}", stderr(&clean));
    assert!(stderr(&clean).contains("the ring was too small") && stderr(&clean).contains("not clean"));
    Made {
        incomplete: Some("the ring was too small"),
        ..BUGGY
    }
    .write(&folder, "buggy.trace");
    let buggy = crashproof(&folder, &["check", "buggy.trace", "--json", "-"]);
    assert_eq!(status(&buggy), 1, "findings are findings: {}", stderr(&buggy));
    let json: Value = serde_json::from_slice(&buggy.stdout).unwrap();
    assert_eq!(json["trace"]["complete"], false);
}

#[test]
fn json_and_sarif_go_where_they_should() {
    let folder = tempfile::tempdir().unwrap();
    BUGGY.write(&folder, "buggy.trace");
    let output = crashproof(
        &folder,
        &["check", "--json", "-", "--sarif", "out.sarif", "buggy.trace"],
    );
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["program"]["status"], 0);
    assert_eq!(
        json["trace"],
        serde_json::json!({ "stores": 2, "flushes": 1, "fences": 1, "complete": true, "incomplete": [] })
    );
    assert_eq!(json["findings"][0]["kind"], "missing-flush");
    assert_eq!(json["findings"][0]["address"]["offset"], 64);
    assert_eq!(json["findings"][0]["file"], Value::Null);
    let sarif: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 1);
}

#[test]
fn outputs_that_cannot_be_written_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    CLEAN.write(&folder, "clean.trace");
    let output = crashproof(&folder, &["check", "--json", "no/such/folder/x.json", "clean.trace"]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("cannot write the JSON to no/such/folder/x.json"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn eadr_needs_no_flush() {
    let folder = tempfile::tempdir().unwrap();
    BUGGY.write(&folder, "buggy.trace");
    let output = crashproof(&folder, &["check", "--model", "eadr", "--json", "-", "buggy.trace"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kinds: Vec<&Value> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| &finding["kind"])
        .collect();
    assert!(!kinds.contains(&&Value::from("missing-flush")), "{json:#}");
}

#[test]
fn the_configuration_is_found_and_its_errors_are_told() {
    let folder = tempfile::tempdir().unwrap();
    BUGGY.write(&folder, "buggy.trace");
    std::fs::write(
        folder.path().join("crashproof.toml"),
        "[[ignore]]\nkind = \"missing-flush\"\nreason = \"known\"\n",
    )
    .unwrap();
    let output = crashproof(&folder, &["check", "buggy.trace"]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    std::fs::write(folder.path().join("bad.toml"), "[[ignore]]\nkind = 7\n").unwrap();
    let output = crashproof(&folder, &["check", "--config", "bad.toml", "buggy.trace"]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("bad.toml") && stderr(&output).contains("line 2"),
        "{}",
        stderr(&output)
    );
    let output = crashproof(&folder, &["check", "--config", "missing.toml", "buggy.trace"]);
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("missing.toml"), "{}", stderr(&output));
}

#[test]
fn a_missing_runtime_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashproof"));
    command
        .args(["check", "--", "true"])
        .current_dir(folder.path())
        .env("CRASHPROOF_RUNTIME", "/no/such/runtime.so");
    let output = command.output().unwrap();
    assert_eq!(status(&output), 2);
    for word in ["/no/such/runtime.so", "make build", "CRASHPROOF_RUNTIME"] {
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}

#[test]
fn wrong_use_is_2() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["check"][..],
        &["record", "-o", "t"],
        &["no-such-command"],
        &["dump"],
        &["check", "--model", "x", "t"],
        &["crash", "--", "true"],
        &["crash", "--recover", "true", "--depth", "3", "t"],
    ] {
        let output = crashproof(&folder, arguments);
        assert_eq!(status(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn dump_shows_and_filters_events() {
    let folder = tempfile::tempdir().unwrap();
    CLEAN.write(&folder, "t");
    insta::assert_snapshot!(stdout(&crashproof(&folder, &["dump", "t"])));
    let lines = |arguments: &[&str]| {
        let output = crashproof(&folder, &[&["dump"], arguments, &["t"]].concat());
        assert_eq!(status(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output).lines().count()
    };
    assert_eq!(lines(&["--kind", "store"]), 2);
    assert_eq!(lines(&["--kind", "store,flush", "--kind", "fence"]), 5);
    assert_eq!(lines(&["--range", "0x40..0x80", "--kind", "store,flush"]), 2);
    assert_eq!(lines(&["--range", "71+1", "--kind", "store"]), 1);
    assert_eq!(lines(&["--range", "72+1", "--kind", "store"]), 0);
    assert_eq!(lines(&["--file", "pool", "--kind", "store"]), 2);
    assert_eq!(lines(&["--file", "other"]), 0);
    assert_eq!(lines(&["--thread", "0"]), 10);
    assert_eq!(lines(&["--thread", "1"]), 0);
    assert_eq!(lines(&["--from", "3", "--to", "4"]), 2);
    assert_eq!(lines(&["--function", "main"]), 0);
    assert_eq!(lines(&["--stacks", "--kind", "fence"]), 2);
}

#[test]
fn dump_into_a_closed_pipe_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    CLEAN.write(&folder, "t");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashproof"));
    let output = command
        .args(["dump", "t"])
        .current_dir(folder.path())
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
}

#[test]
fn completions_and_man_pages() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = crashproof(&folder, &["completions", shell]);
        assert_eq!(status(&output), 0);
        assert!(stdout(&output).contains("client-requests"), "{shell}");
        assert!(stdout(&output).contains("reorder-in-line"), "{shell}");
    }
    assert!(stdout(&crashproof(&folder, &["man"])).contains(".TH crashproof 1"));
    assert_eq!(status(&crashproof(&folder, &["man", "pages"])), 0);
    let mut pages: Vec<_> = std::fs::read_dir(folder.path().join("pages"))
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for command in ["check", "crash", "test", "init"] {
        assert!(pages.contains(&format!("crashproof-{command}.1")), "{pages:?}");
    }
    assert!(!pages.iter().any(|page| page.contains("self-test")), "{pages:?}");
}

#[test]
fn help_teaches() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        "check", "crash", "test", "init", "record", "dump", "explain", "cc", "c++",
    ] {
        let help = stdout(&crashproof(&folder, &["help", command]));
        assert!(help.contains("Example"), "{command}: {help}");
    }
    insta::assert_snapshot!(stdout(&crashproof(&folder, &["--help"])));
    insta::assert_snapshot!(stdout(&crashproof(&folder, &["check", "-h"])));
    insta::assert_snapshot!(stdout(&crashproof(&folder, &["crash", "-h"])));
}

const BRANCH: &str = "store name 0x4a3c000 8\nstore valid 0x4a3c080 8\nflush valid\nflush name\nfence\n\
                      require name before valid\nrequire durable valid\n";

#[test]
fn litmus_files() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("branch.litmus"), BRANCH).unwrap();
    let verdict = crashproof(&folder, &["litmus", "branch.litmus"]);
    assert_eq!(status(&verdict), 1, "{}", stderr(&verdict));
    assert_eq!(
        stdout(&verdict),
        "violated: name before valid\n          a crash after `store valid 0x4a3c080 8` may leave valid persisted, and name lost\n\
         holds:    durable valid\n"
    );
    let repaired = crashproof(&folder, &["litmus", "--repair", "--json", "out.json", "branch.litmus"]);
    assert_eq!(status(&repaired), 0, "{}", stderr(&repaired));
    assert!(
        stdout(&repaired).contains("flush name  # moved\nfence  # added\n"),
        "{}",
        stdout(&repaired)
    );
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    assert_eq!(json["holds"], false);
    assert_eq!(json["violations"][0]["missing"][0], "name");
    assert_eq!(json["repair"]["added_fences"], 1);
    assert_eq!(json["repair"]["stores_moved"], 0);
    assert_eq!(json["repair"]["lines"][0]["addr"], 0x4a3c000);
    // What it printed holds.
    std::fs::write(folder.path().join("again.litmus"), &repaired.stdout).unwrap();
    assert_eq!(status(&crashproof(&folder, &["litmus", "again.litmus"])), 0);

    std::fs::write(
        folder.path().join("circle.litmus"),
        "store a 0 8\nstore b 64 8\nrequire a before b\nrequire b before a\n",
    )
    .unwrap();
    let circle = crashproof(&folder, &["litmus", "--repair", "circle.litmus"]);
    assert_eq!(status(&circle), 1);
    assert!(
        stderr(&circle).contains("a before b, b before a"),
        "{}",
        stderr(&circle)
    );

    std::fs::write(folder.path().join("bad.litmus"), "store a 0 8\nflash a\n").unwrap();
    let bad = crashproof(&folder, &["litmus", "bad.litmus"]);
    assert_eq!(status(&bad), 2);
    assert!(
        stderr(&bad).contains("bad.litmus:2:1: `flash` is no operation"),
        "{}",
        stderr(&bad)
    );
    assert_eq!(status(&crashproof(&folder, &["litmus", "missing.litmus"])), 2);
}

#[test]
fn litmus_file_from_a_trace() {
    let folder = TempDir::new().unwrap();
    let trace = BUGGY.write(&folder, "buggy.trace");
    let cut = crashproof(&folder, &["litmus", "--from", trace.to_str().unwrap()]);
    assert_eq!(status(&cut), 0, "{}", stderr(&cut));
    assert!(stdout(&cut).contains("require durable"), "{}", stdout(&cut));
    std::fs::write(folder.path().join("cut.litmus"), &cut.stdout).unwrap();
    assert_eq!(status(&crashproof(&folder, &["litmus", "cut.litmus"])), 1);
    assert_eq!(status(&crashproof(&folder, &["litmus", "--repair", "cut.litmus"])), 0);
    let nothing = crashproof(
        &folder,
        &["litmus", "--from", trace.to_str().unwrap(), "--window", "9000..9001"],
    );
    assert_eq!(status(&nothing), 2);
}
