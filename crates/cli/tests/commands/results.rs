//! What CI relies on: which findings count, the exit status, and the files that are written.

use crate::support;

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::made::{BUGGY, CLEAN, Made};
use support::{compile, crashproof, run, text};
use tempfile::TempDir;

/// With traces of a program with a missing flush and of its fixed twin.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    BUGGY.write(&folder, "buggy.trace");
    CLEAN.write(&folder, "clean.trace");
    folder
}

fn in_folder(folder: &TempDir, arguments: &[&str], status: i32) -> Output {
    run(crashproof().current_dir(folder.path()).args(arguments), status)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn only_what_the_baseline_lacks_counts() {
    let folder = folder();
    in_folder(&folder, &["check", "--json", "known.json", "buggy.trace"], 1);
    let arguments = [
        "check",
        "--baseline",
        "known.json",
        "--json",
        "-",
        "--sarif",
        "out.sarif",
        "buggy.trace",
    ];
    let known = in_folder(&folder, &arguments, 0);
    let said = text(&known.stderr);
    assert!(
        said.contains("no new findings (1 in the baseline, not shown)"),
        "{said}"
    );
    assert!(!said.contains("error["), "{said}");
    let report: Value = serde_json::from_slice(&known.stdout).unwrap();
    assert_eq!(report["known"], serde_json::json!([0]));
    assert_eq!(
        json(&folder.path().join("out.sarif"))["runs"][0]["results"][0]["baselineState"],
        "unchanged"
    );
    // Of another program's report nothing is known; a baseline may itself have been compared with one.
    in_folder(&folder, &["check", "--json", "clean.json", "clean.trace"], 0);
    in_folder(&folder, &["check", "--baseline", "clean.json", "buggy.trace"], 1);
    let gone = in_folder(&folder, &["check", "--baseline", "known.json", "clean.trace"], 0);
    assert!(
        text(&gone.stderr).contains("1 finding of the baseline is gone"),
        "{}",
        text(&gone.stderr)
    );
}

#[test]
fn a_baseline_that_is_none_is_told_before_anything_runs() {
    let folder = folder();
    let missing = in_folder(&folder, &["check", "--baseline", "no.json", "buggy.trace"], 2);
    assert!(
        text(&missing.stderr).contains("cannot read the baseline no.json"),
        "{}",
        text(&missing.stderr)
    );
    std::fs::write(folder.path().join("bad.json"), "{\"version\": \"2.1.0\"}").unwrap();
    for command in ["check", "crash"] {
        let recover: &[&str] = if command == "crash" {
            &["--recover", "true"]
        } else {
            &[]
        };
        let arguments = [&[command, "--baseline", "bad.json"], recover, &["buggy.trace"]].concat();
        let bad = in_folder(&folder, &arguments, 2);
        assert!(
            text(&bad.stderr).contains("bad.json is no baseline"),
            "{}",
            text(&bad.stderr)
        );
    }
}

#[test]
fn the_severity_to_fail_on() {
    let folder = folder();
    // With eADR the flushes are warnings and there is no error.
    let check = |fail_on: &[&str], status| {
        in_folder(
            &folder,
            &[&["check", "--model", "eadr", "buggy.trace"], fail_on].concat(),
            status,
        )
    };
    check(&[], 1);
    check(&["--fail-on", "note"], 1);
    check(&["--fail-on", "warning"], 1);
    let shown = check(&["--fail-on", "error"], 0);
    assert!(
        text(&shown.stderr).contains("warning[redundant-flush]"),
        "{}",
        text(&shown.stderr)
    );
    in_folder(&folder, &["check", "--fail-on", "error", "buggy.trace"], 1);
    in_folder(&folder, &["check", "--fail-on", "often", "buggy.trace"], 2);
    // What is missing may hold an error.
    let incomplete = Made {
        incomplete: Some("the ring was too small"),
        ..BUGGY
    };
    incomplete.write(&folder, "incomplete.trace");
    in_folder(
        &folder,
        &["check", "--model", "eadr", "--fail-on", "error", "incomplete.trace"],
        2,
    );
}

#[test]
fn lines_for_editors_and_junit() {
    let folder = folder();
    let arguments = ["check", "--format", "gnu", "--junit", "out.xml", "buggy.trace"];
    let output = in_folder(&folder, &arguments, 1);
    let said = text(&output.stderr);
    assert!(
        said.starts_with(
            "crashproof: missing-flush: store of 8 bytes at offset 0x40 of pool is never flushed (0x1100 in made)\n"
        ),
        "{said}"
    );
    // Of the trace as a whole, not of a place.
    assert!(
        said.contains("crashproof: warning: cannot read /no/such/made"),
        "{said}"
    );
    let xml = std::fs::read_to_string(folder.path().join("out.xml")).unwrap();
    assert!(
        xml.contains("<testsuite name=\"check\" tests=\"1\" failures=\"1\""),
        "{xml}"
    );
    let clean = in_folder(&folder, &["check", "--junit", "-", "clean.trace"], 0);
    assert!(
        text(&clean.stdout).contains("name=\"no findings\""),
        "{}",
        text(&clean.stdout)
    );
}

/// What the page's script reads.
fn page_data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"crashproof-data\">").expect("the page has data");
    let (data, _) = rest.split_once("</script>").expect("which ends");
    serde_json::from_str(data).unwrap()
}

#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let folder = folder();
    let place = |name: &str| folder.path().join(name);
    in_folder(
        &folder,
        &["check", "--html", "out.html", "--json", "out.json", "buggy.trace"],
        1,
    );
    let page = std::fs::read_to_string(place("out.html")).unwrap();
    let data = page_data(&page);
    assert_eq!(
        data["command"],
        "crashproof check --html out.html --json out.json buggy.trace"
    );
    let shown = &data["runs"][0];
    assert_eq!(shown["findings"][0]["kind"], "missing-flush");
    let report = json(&place("out.json"));
    assert_eq!(shown["findings"][0]["message"], report["findings"][0]["message"]);
    let stores: u64 = report["traffic"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["stores"].as_u64().unwrap())
        .sum();
    assert_eq!(report["trace"]["stores"], stores);
    let stdout = in_folder(&folder, &["check", "--html", "-", "clean.trace"], 0).stdout;
    assert_eq!(page_data(&text(&stdout))["runs"][0]["findings"], serde_json::json!([]));

    // Nothing runs for a page that cannot be written.
    for path in ["no/such/out.html", "."] {
        let failed = in_folder(
            &folder,
            &[
                "check",
                "--html",
                path,
                "--keep-trace",
                "kept",
                "--",
                "./no-such-program",
            ],
            2,
        );
        let said = text(&failed.stderr);
        assert!(
            said.contains(&format!("cannot write the HTML report to {path}")),
            "{said}"
        );
    }
    let full = in_folder(&folder, &["check", "--html", "/dev/full", "buggy.trace"], 2);
    let said = text(&full.stderr);
    assert!(
        said.contains("cannot write the HTML report to /dev/full: No space left"),
        "{said}"
    );
    // The disk is full in the middle of it: the page that was there stays, and nothing else is left.
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let limited = "trap '' XFSZ; ulimit -f 4; exec \"$0\" check --html out.html clean.trace";
    let crashproof = crashproof();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", limited])
        .arg(crashproof.get_program())
        .current_dir(folder.path());
    for (name, value) in crashproof.get_envs() {
        shell.envs(value.map(|value| (name, value)));
    }
    let failed = run(&mut shell, 2);
    let said = text(&failed.stderr);
    assert!(
        said.contains("cannot write the HTML report to out.html: File too large"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(place("out.html")).unwrap(), page);
    assert_eq!(names(), before);
}

const PROGRAM: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
	int fd = open("pool", O_RDWR | O_CREAT, 0600);
	if (ftruncate(fd, 4096))
		return 1;
	long *pool = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pool[0] = 1;
	return 0;
}
"#;

#[test]
fn all_tests_of_a_project_go_into_one_file_of_each_kind() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("app.c"), PROGRAM).unwrap();
    let config =
        "[[test]]\nname = \"put\"\nprogram = \"./app\"\n[[test]]\nname = \"broken\"\nprogram = \"./no-such-app\"\n";
    std::fs::write(place("crashproof.toml"), config).unwrap();
    compile(
        "gcc",
        &["-g", "-O1", &place("app.c").display().to_string()],
        &place("app"),
    );
    let outputs = [
        "test",
        "--json",
        "known.json",
        "--sarif",
        "out.sarif",
        "--junit",
        "out.xml",
        "--html",
        "out.html",
    ];
    in_folder(&folder, &outputs, 2);
    let page = page_data(&std::fs::read_to_string(place("out.html")).unwrap());
    assert_eq!(page["runs"][0]["name"], "check put");
    assert_eq!(page["runs"][0]["findings"][0]["line"], 12);
    assert_eq!(page["runs"][0]["traffic"][0]["function"], "main");
    assert_eq!(page["files"][0]["path"], "app.c");
    assert_eq!(page["files"][0]["problem"], Value::Null);
    assert_eq!(page["runs"][1]["name"], "check broken");
    assert!(page["runs"][1]["error"].as_str().unwrap().contains("no-such-app"));
    let sarif = json(&place("out.sarif"));
    assert_eq!(sarif["runs"].as_array().unwrap().len(), 1);
    assert_eq!(sarif["runs"][0]["automationDetails"]["id"], "crashproof/check/put/");
    let xml = std::fs::read_to_string(place("out.xml")).unwrap();
    assert!(
        xml.contains("<testsuite name=\"check put\" tests=\"1\" failures=\"1\" errors=\"0\""),
        "{xml}"
    );
    assert!(
        xml.contains("<testsuite name=\"check broken\" tests=\"1\" failures=\"0\" errors=\"1\""),
        "{xml}"
    );
    in_folder(&folder, &["test", "put"], 1);
    // A line more above it is the same finding.
    std::fs::write(place("app.c"), format!("\n\n{PROGRAM}")).unwrap();
    compile(
        "gcc",
        &["-g", "-O1", &place("app.c").display().to_string()],
        &place("app"),
    );
    let known = in_folder(&folder, &["test", "--baseline", "known.json", "put"], 0);
    assert!(
        text(&known.stderr).contains("in the baseline"),
        "{}",
        text(&known.stderr)
    );
}
