//! `crashproof repair` from outside: what it takes, what it writes, what it says when it cannot be done. The programs of `corpus/repair` show the repairs.

use std::fs;

use serde_json::{Value, json};

use crate::support;

use support::project::{BUILD, Project};
use support::{run, text};

/// Line 17 is never flushed.
const SOURCE: &str = r#"#include <emmintrin.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void persist(const void *address, unsigned long size)
{
	for (unsigned long line = (unsigned long)address & ~63ul; line < (unsigned long)address + size; line += 64)
		_mm_clflush((void *)line);
	_mm_sfence();
}

static void put(long *words, long value)
{
	words[8] = value;
	words[0] = 1;
	persist(&words[0], sizeof words[0]);
}

int main(int argc, char **argv)
{
	int file = open(argv[argc - 1], O_RDWR | O_CREAT, 0644);
	if (ftruncate(file, 4096) != 0)
		return 2;
	long *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	put(words, 42);
	printf("%ld %ld\n", words[0], words[8]);
	if (argc > 2 && strcmp(argv[1], "--pid") == 0)
		printf("%d\n", (int)getpid());
	return 0;
}
"#;

#[test]
fn a_repair_writes_a_diff_and_json_and_leaves_the_tree_alone() {
    let project = Project::new(SOURCE);
    let arguments = ["--sarif", "../out.sarif", "--build", BUILD, "--", "./app", "pool"];
    let output = run(&mut project.repair(&arguments), 0);
    project.assert_untouched();
    let diff = text(&output.stdout);
    let sarif: Value = serde_json::from_str(&fs::read_to_string(project.path("out.sarif")).unwrap()).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(
        (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
        (&json!("app.c"), &json!(17))
    );
    let change = &result["fixes"][0]["artifactChanges"][0];
    assert_eq!(change["artifactLocation"]["uri"], "app.c");
    let inserted = change["replacements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|replacement| &replacement["insertedContent"]["text"]);
    assert!(
        inserted.clone().any(|text| text.as_str().unwrap().contains("words[8]")),
        "{change}"
    );
    assert!(
        diff.contains("\n words[8] = value;\n".replace("\n ", "\n \t").as_str()),
        "{diff}"
    );
    assert!(
        diff.lines()
            .any(|line| line.starts_with("+\t") && line.contains("words[8]")),
        "{diff}"
    );
    let json = project.json();
    let file = project.path("src/app.c").display().to_string();
    assert_eq!(
        json["findings"],
        json!([{
            "kind": "missing-flush", "file": file, "line": 17, "function": "put",
            "state": "repaired", "fixes": [0], "seen_before": true,
        }])
    );
    assert_eq!(json["diff"], diff);
    let fix = &json["fixes"][0];
    assert_eq!(
        (&fix["findings"], &fix["safe_by"], &fix["in_source"]),
        (&json!([0]), &json!("flush-insertion"), &json!(true))
    );
    assert_eq!(fix["edit"]["flush"]["fence"], json!(false));
    let store = &fix["edit"]["flush"]["stores"][0];
    assert_eq!(
        (
            &store["function"],
            &store["position"]["file"],
            &store["position"]["line"]
        ),
        (&json!("put"), &json!(file), &json!(17))
    );
    let change = &fix["changes"][0];
    assert_eq!((&change["file"], &change["change"]), (&json!(file), &json!("added")));
    assert!(change["text"].as_str().unwrap().contains("words[8]"), "{change}");
    assert_eq!(
        json["verification"],
        json!({
            "verified": true,
            "attempts": [{ "how": "as planned", "passed": true, "new_warnings": [] }],
            "test": null, "output": "same", "crash": null,
        })
    );
    assert_eq!(
        (&json["version"], &json["result"], &json["applied"]),
        (&json!(1), &json!("repaired"), &json!(false))
    );
    assert_eq!(
        (&json["program"], &json["clones"], &json["notes"]),
        (&json!(["./app", "pool"]), &json!([]), &json!([]))
    );
}

#[test]
fn apply_writes_what_was_verified_and_then_there_is_nothing_to_repair() {
    let project = Project::new(SOURCE);
    fs::write(
        project.path("src/crashproof.toml"),
        format!("[repair]\nbuild = {BUILD:?}\ntest = './app tested && test -s tested'\n[[test]]\nprogram = './app --pid pool'\n"),
    )
    .unwrap();
    let output = run(&mut project.repair(&["--apply"]), 0);
    let json = project.json();
    assert_eq!(
        (&json["applied"], &json["verification"]["test"]),
        (&json!(true), &json!(true))
    );
    // It prints its process id.
    assert_eq!(
        json["verification"]["output"],
        "not-comparable",
        "{}",
        text(&output.stderr)
    );
    assert_ne!(project.source(), SOURCE);
    let output = run(&mut project.repair(&["--apply"]), 0);
    assert!(
        text(&output.stderr).contains("nothing to repair"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        (project.json()["diff"].as_str(), &project.json()["applied"]),
        (Some(""), &json!(false))
    );
}

#[test]
fn findings_come_from_traces_and_from_elsewhere() {
    let project = Project::new(SOURCE);
    let elsewhere = r#"[{"kind": "missing-flush", "file": "/build/7/app.c", "line": 17}, {"kind": "crash-order", "file": "app.c", "line": 18}]"#;
    fs::write(project.path("src/elsewhere.json"), elsewhere).unwrap();
    let arguments = [
        "--build",
        BUILD,
        "--no-verify",
        "--findings",
        "elsewhere.json",
        "--",
        "./app",
        "pool",
    ];
    let output = run(&mut project.repair(&arguments), 1);
    assert!(text(&output.stdout).contains("+\t"), "{}", text(&output.stdout));
    let json = project.json();
    let states: Vec<_> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["state"].clone())
        .collect();
    assert_eq!(states, ["repaired", "left"]);
    assert!(json["findings"][1]["reason"].as_str().unwrap().contains("--recover"));
    assert_eq!(json["verification"], Value::Null);

    // The trace is of a build that the repair does not know, and has the program's name.
    support::compile(
        "cc",
        &["-g", "-O2", project.path("src/app.c").to_str().unwrap()],
        &project.path("src/app"),
    );
    run(
        &mut project.crashproof(&["record", "-o", "app.trace", "--", "./app", "pool"]),
        0,
    );
    fs::remove_file(project.path("src/pool")).unwrap();
    run(&mut project.repair(&["--build", BUILD, "--no-verify", "app.trace"]), 0);
    assert_eq!(project.json()["program"], json!(["./app", "pool"]));
    project.assert_untouched();
}

#[test]
fn what_cannot_be_done_is_told_with_its_remedy() {
    let project = Project::new(SOURCE);
    fs::write(project.path("src/broken.json"), "{").unwrap();
    for (arguments, words) in [
        (&["--", "./app"][..], &["--build make"][..]),
        (&["--build", "true"], &["which program?", "[[test]]"]),
        (
            &["--build", "echo no such header; false", "--", "./app"],
            &[
                "`echo no such header; false` exited with status 1",
                "    no such header",
                "--keep",
            ],
        ),
        (&["--build", "true", "--", "./app"], &["did not make", "src/app;"]),
        (
            &["--build", "true", "--findings", "broken.json", "--", "./app"],
            &["broken.json is not a list", "crashproof check --json"],
        ),
        (&["--build", "true", "missing.trace"], &["missing.trace"]),
        (
            &["--build", "true", "--source", "nowhere", "--", "./app"],
            &["nowhere", "--source"],
        ),
        (
            &["--build", "true", "--keep", ".", "--", "./app"],
            &["--keep is not empty"],
        ),
        (
            &["--build", "/usr/bin/gcc -g -o app app.c", "--", "./app", "pool"],
            &["without crashproof cc", "$CC", "make clean all"],
        ),
        (
            &["--build", BUILD, "--test", "echo bad; false", "--", "./app", "pool"],
            &["without any patch, the test failed", "    bad"],
        ),
    ] {
        let output = run(&mut project.repair(arguments), 2);
        let told = text(&output.stderr);
        assert!(words.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
        assert!(!told.contains("crashproof-repair-"), "a path of the copy: {told}");
        assert_eq!(text(&output.stdout), "");
    }
    project.assert_untouched();
}

#[test]
fn a_patch_that_does_not_verify_is_not_shown_and_changes_nothing() {
    let project = Project::new(SOURCE);
    // Passes only on the source as it is.
    let test = format!("cmp app.c {}", project.path("src/app.c").display());
    let arguments = ["--build", BUILD, "--test", &test, "--apply", "--", "./app", "pool"];
    let output = run(&mut project.repair(&arguments), 1);
    assert_eq!(text(&output.stdout), "");
    let told = text(&output.stderr);
    assert!(
        told.contains("not verified (as planned): the test failed") && told.contains("nothing was changed"),
        "{told}"
    );
    let json = project.json();
    assert_eq!(
        (&json["verification"]["verified"], &json["diff"], &json["applied"]),
        (&json!(false), &json!(""), &json!(false))
    );
    assert_eq!(
        (&json["verification"]["test"], &json["findings"][0]["state"]),
        (&json!(false), &json!("left"))
    );
    project.assert_untouched();
}

/// `set` stores to PM for `main`, and to a variable of its own for `count`; the last store of `main` is on its own.
const HELPER: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void flush(const void *at, size_t size)
{
	for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < (uintptr_t)at + size; line += 64)
		__asm__ volatile("clwb %0" : "+m"(*(volatile char *)line) : : "memory");
}

static void fence(void)
{
	__asm__ volatile("sfence" : : : "memory");
}

static void set(long *at, long value)
{
	*at = value;
}

static long count(long times)
{
	static long counter;
	for (long i = 0; i < times; i++)
		set(&counter, counter + i);
	return counter;
}

int main(int argc, char **argv)
{
	int file = open(argv[argc - 1], O_RDWR | O_CREAT, 0644);
	if (ftruncate(file, 4096) != 0)
		return 2;
	long *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	set(&words[0], 7);
	fence();
	words[8] = 8;
	fence();
	words[16] = 9;
	flush(&words[16], sizeof words[16]);
	fence();
	printf("%ld %ld %ld\n", words[0], words[8], count(5));
	return 0;
}
"#;

#[test]
fn where_fixes_go_can_be_chosen() {
    let project = Project::new(HELPER);
    let repaired = |options: &[&str]| {
        let mut command = project.repair(&["--build", BUILD]);
        let output = run(command.args(options).args(["--", "./app", "pool"]), 0);
        text(&output.stdout)
    };
    let by_program = repaired(&["--explain"]);
    assert!(by_program.contains("+\tset_persist(&words[0], 7);\n"), "{by_program}");
    assert_eq!(repaired(&["--trace-aliases"]), by_program);
    assert_eq!(repaired(&["--inject-flushes"]), by_program);
    let in_place = repaired(&["--intra-only"]);
    assert!(!in_place.contains("_persist("), "{in_place}");
    assert!(
        in_place.contains(" \t*at = value;\n+\tflush(at, sizeof *at);\n"),
        "{in_place}"
    );
}

#[test]
fn the_bitcode_is_repaired_too() {
    let project = Project::new(HELPER);
    let (binary, bitcode) = (project.path("fixed"), project.path("fixed.bc"));
    let mut command = project.repair(&["--build", BUILD, "--out-binary"]);
    command.arg(&binary).arg("--out-bitcode").arg(&bitcode);
    run(command.args(["--", "./app", "pool"]), 0);
    assert_eq!(project.json()["binary"], json!({"findings": [0, 1], "verified": true}));
    assert!(fs::read(&bitcode).unwrap().starts_with(b"BC"));
    let mut check = project.crashproof(&["check", "--"]);
    run(check.arg(&binary).arg("../pool"), 0);
}

#[test]
fn a_fix_that_does_not_verify_is_left_out() {
    let project = Project::new(HELPER);
    // As if the second fix broke something: one of the build, and one of the tests.
    let build = format!("! grep -q 'flush(&words.8' app.c || {{ echo no; exit 1; }}; {BUILD}");
    for (build, test, words) in [
        (build.as_str(), "true", "the build failed"),
        (BUILD, "! grep -q 'flush(&words.8' app.c", "the test failed"),
    ] {
        let output = run(
            &mut project.repair(&["--build", build, "--test", test, "--", "./app", "pool"]),
            1,
        );
        let (diff, told, json) = (text(&output.stdout), text(&output.stderr), project.json());
        assert!(
            diff.contains("set_persist") && !diff.contains("+\tflush(&words[8]"),
            "{diff}"
        );
        assert!(told.contains(words), "{told}");
        let states = ["state", "state"]
            .iter()
            .enumerate()
            .map(|(index, key)| &json["findings"][index][key]);
        assert_eq!(states.collect::<Vec<_>>(), ["repaired", "left"]);
        let attempts = json["verification"]["attempts"].as_array().unwrap();
        assert!(
            attempts.len() > 1 && attempts.last().unwrap()["passed"] == true,
            "{attempts:?}"
        );
    }
}

#[test]
fn a_flush_of_a_caller_does_not_become_redundant() {
    let project = Project::new(SOURCE);
    // `set` stores for two callers, of which one flushes.
    let source = HELPER.replace(
        "\twords[8] = 8;\n\tfence();\n",
        "\tset(&words[8], 8);\n\tflush(&words[8], sizeof words[8]);\n\tfence();\n",
    );
    let source = source.replace("\t\tset(&counter, counter + i);\n", "\t\tcounter += i;\n");
    fs::write(project.path("src/app.c"), source).unwrap();
    let output = run(&mut project.repair(&["--build", BUILD, "--", "./app", "pool"]), 0);
    let diff = text(&output.stdout);
    assert!(diff.contains("+\tset_persist(&words[0], 7);\n"), "{diff}");
    assert!(!diff.contains("+\tset_persist(&words[8], 8);\n"), "{diff}");
    let json = project.json();
    let last = json["verification"]["attempts"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(
        (&last["how"], &last["new_warnings"]),
        (&json!("flushed for those callers alone that do not flush"), &json!([]))
    );
}
