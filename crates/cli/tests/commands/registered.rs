//! Memory that the program registers as persistent: when its trace is complete, and what `crash` makes of it.

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{compile, crashproof, run, source, text};

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-g", "-O1", "-Wall", &source("registered/memory.c")];
    compile("gcc", &arguments, &folder.path().join("memory"));
    folder
}

/// Runs a command in the folder, and returns what it says.
fn said(folder: &TempDir, arguments: &[&str], steps: &str, status: i32) -> String {
    let mut command = crashproof();
    command
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .args(arguments)
        .args(["--", "./memory"])
        .args(steps.split(' '));
    let output = run(&mut command, status);
    text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the process itself has sent is compared; of what it has not sent before it was killed nothing is left.
#[test]
fn a_trace_is_complete_only_if_the_memory_was_compared() {
    let folder = folder();
    for steps in [
        "register",
        "register store",
        "file register store unregister kill",
        "register store unregister file kill",
        "register fork execute",
        "register store fork execute",
        "register store execute",
        "register fork store",
    ] {
        let said = said(&folder, &["check", "--allow-failure", "--allow-no-stores"], steps, 0);
        assert!(said.contains("trace complete"), "{steps}: {said}");
    }
    for steps in [
        "file register kill",
        "register store kill",
        "register store unregister-half kill",
        "register store fork kill",
    ] {
        let said = said(&folder, &["check", "--allow-failure", "--allow-no-stores"], steps, 2);
        assert!(
            said.contains("nothing is left of its memory") && said.contains("trace incomplete"),
            "{steps}: {said}"
        );
    }
}

/// Client requests are off in a crash test; registrations count all the same, so that it can say what it leaves out.
#[test]
fn a_crash_test_leaves_it_out_and_says_so() {
    let folder = folder();
    let crash = ["crash", "--jobs", "1", "--json", "r.json", "--recover", "cat pool"];
    let said_of_both = said(&folder, &crash, "file register store", 0);
    assert!(
        said_of_both.contains("a crash test is of files") && said_of_both.contains("is left out (stores: 1)"),
        "{said_of_both}"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(folder.path().join("r.json")).unwrap()).unwrap();
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{report:#}");
    assert!(files[0]["path"].as_str().unwrap().ends_with("pool"), "{report:#}");

    let said_of_memory = said(&folder, &crash, "register store", 2);
    assert!(
        said_of_memory.contains("a crash test is of files, and the program stored to none: it registered memory"),
        "{said_of_memory}"
    );
    let said_of_file = said(&folder, &crash, "file", 0);
    assert!(!said_of_file.contains("left out (stores"), "{said_of_file}");
}

/// With `--pm` it is left out, and the report says so. What the program flushes there is not seen, so that no fence is called redundant.
#[test]
fn a_pattern_leaves_it_out_and_the_report_says_so() {
    let folder = folder();
    let checked = said(&folder, &["check", "--pm", "pool"], "file register store", 0);
    assert!(
        checked.contains("left out: registered memory (does not match --pm; --pm 'registered memory*')"),
        "{checked}"
    );
    let all = ["check", "--pm", "pool", "--pm", "registered memory*"];
    let checked = said(&folder, &all, "file register store", 0);
    assert!(
        checked.contains("registered memory") && !checked.contains("left out"),
        "{checked}"
    );
}

/// What libpmemobj registers is given back at once, so a kill leaves nothing to compare but the pool.
#[test]
fn a_killed_program_of_libpmemobj_has_a_complete_trace() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-g", "-O1", "-Wall", &source("registered/killed_pool.c"), "-lpmemobj"];
    compile("gcc", &arguments, &folder.path().join("killed_pool"));
    let mut command = crashproof();
    command
        .current_dir(folder.path())
        .args(["record", "-o", "trace", "--", "./killed_pool"]);
    let output = command.output().unwrap();
    assert_eq!(text(&output.stderr), "", "{output:?}");
    let mut dump = crashproof();
    dump.current_dir(folder.path())
        .args(["dump", "--kind", "unmap", "trace"]);
    let unmapped = text(&run(&mut dump, 0).stdout);
    assert!(unmapped.contains("registered memory"), "{unmapped}");
}
