//! `crashproof repair` with a recovery: every patch is crashed again, and what a crash test says counts. The programs of `corpus/crash` show the
//! repairs of orders (`repair_order`).

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support;

use support::project::{BUILD, Project};
use support::{run, text};

/// Line 17 is never flushed, and `recover` needs it. `run` exits with the status that it is given.
const SOURCE: &str = r#"#include <emmintrin.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void persist(const void *address, unsigned long size)
{
	for (unsigned long line = (unsigned long)address & ~63ul; line < (unsigned long)address + size; line += 64)
		_mm_clflush((void *)line);
	_mm_sfence();
}

static int put(long *words, long value)
{
	words[8] = value;
	words[0] = 1;
	persist(&words[0], sizeof words[0]);
	return 0;
}

int main(int argc, char **argv)
{
	int file = open("pool", O_RDWR | O_CREAT, 0644);
	if (argc < 2 || ftruncate(file, 4096) != 0)
		return 2;
	long *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (strcmp(argv[1], "recover") == 0)
		return words[0] == 1 && words[8] != 42;
	put(words, 42);
	return argc > 2 ? atoi(argv[2]) : 0;
}
"#;

/// With a crash test that ends soon.
fn repair(project: &Project, arguments: &[&str]) -> Command {
    let mut command = project.repair(&["--jobs", "1", "--max-states", "200"]);
    command.args(arguments);
    command
}

/// Kinds and states of the findings.
fn states(json: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = json["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|finding| (word(&finding["kind"]), word(&finding["state"])))
        .collect()
}

#[test]
fn a_flush_is_crash_tested_and_mends_what_it_was_the_reason_of() {
    let project = Project::new(SOURCE);
    fs::write(
        project.path("src/crashproof.toml"),
        format!("[repair]\nbuild = {BUILD:?}\n[[test]]\nprogram = './app run 2'\nsetup = 'rm -f pool'\nrecover = './app recover'\n"),
    )
    .unwrap();
    let output = run(&mut repair(&project, &[]), 0);
    project.assert_untouched();
    let json = project.json();
    let repaired = |kind: &str| (kind.to_owned(), "repaired".to_owned());
    assert_eq!(states(&json), [repaired("missing-flush"), repaired("crash-order")]);
    let verification = &json["verification"];
    assert_eq!(
        (&verification["verified"], &verification["crash"]),
        (&json!(true), &json!({ "before": 1, "after": 0 }))
    );
    assert_eq!(json["findings"][1]["seen_before"], true);
    let told = text(&output.stderr);
    assert!(told.contains("recorded, checked and crashed again"), "{told}");
    assert!(told.contains("the program exited with status 2"), "{told}");
}

#[test]
fn findings_of_a_crash_test_are_put_in_order() {
    let project = Project::new(SOURCE);
    let (before, wrong) = (
        "\twords[8] = value;\n\twords[0] = 1;\n\tpersist(&words[0], sizeof words[0]);\n",
        "\twords[0] = 1;\n\tpersist(&words[0], sizeof words[0]);\n\twords[8] = value;\n\tpersist(&words[8], sizeof words[8]);\n",
    );
    let source = SOURCE.replace(before, wrong);
    assert_ne!(source, SOURCE);
    fs::write(project.path("src/app.c"), &source).unwrap();
    let app = project.path("src/app");
    support::compile("cc", &["-g", "-O2", project.path("src/app.c").to_str().unwrap()], &app);
    let mut crash = support::crashproof();
    crash
        .current_dir(project.path("src"))
        .args(["crash", "--json", "../crash.json", "--save", "../crashes"]);
    run(
        crash.args(["--jobs", "1", "--recover", "./app recover", "--", "./app", "run"]),
        1,
    );
    fs::remove_file(project.path("src/pool")).unwrap();
    let given = ["--build", BUILD, "--findings", "../crash.json", "--setup", "rm -f pool"];

    // Nothing is claimed that was not crashed again.
    let output = run(
        support::crashproof()
            .current_dir(project.path("src"))
            .arg("repair")
            .args(given),
        1,
    );
    assert!(
        text(&output.stderr).contains("only with the recovery: --recover"),
        "{}",
        text(&output.stderr)
    );

    let output = run(
        &mut repair(
            &project,
            &[&given[..], &["--recover", "./app recover", "--apply"]].concat(),
        ),
        0,
    );
    let (json, told) = (project.json(), text(&output.stderr));
    assert_eq!(
        states(&json),
        [("crash-order".to_owned(), "repaired".to_owned())],
        "{told}"
    );
    assert_eq!(json["verification"]["crash"], json!({ "before": 1, "after": 0 }));
    assert_eq!(json["findings"][0]["orders"], json!([0]));
    assert!(
        json["orders"][0]["litmus"].as_str().unwrap().contains("require"),
        "{json:#}"
    );
    assert!(!json["orders"][0]["words"].as_array().unwrap().is_empty());
    let patched = project.source();
    let right = "\twords[8] = value;\n\tpersist(&words[8], sizeof words[8]);\n\twords[0] = 1;\n\tpersist(&words[0], sizeof words[0]);\n";
    assert_eq!(patched, SOURCE.replace(before, right));
}

#[test]
fn a_patch_that_fails_the_crash_test_is_refused() {
    let project = Project::new(SOURCE);
    // With the patch, and only then, one store without the other is wrong, whichever comes first.
    let recover = "od -N1 pool > /dev/null; if grep -q '^\tpersist(&words.8.' app.c; then set -- $(od -An -tu8 -j0 -N72 -v pool); \
                   case \"$1 $9\" in '0 0' | '1 42') true ;; *) false ;; esac; fi";
    let arguments = [
        "--build",
        BUILD,
        "--setup",
        "rm -f pool",
        "--recover",
        recover,
        "--apply",
        "--",
        "./app",
        "run",
    ];
    let output = run(&mut repair(&project, &arguments), 1);
    project.assert_untouched();
    let (json, told) = (project.json(), text(&output.stderr));
    assert_eq!(
        (&json["verification"]["verified"], &json["diff"], &json["applied"]),
        (&json!(false), &json!(""), &json!(false)),
        "{told}"
    );
    assert!(told.contains("a crash test finds something new: crash-"), "{told}");
    assert_eq!(text(&output.stdout), "");

    // With the patch the recovery cannot be run at all.
    let recover = "od -N1 pool > /dev/null; ! grep -q '^\tpersist(&words.8.' app.c";
    let arguments = [
        "--build",
        BUILD,
        "--setup",
        "rm -f pool",
        "--recover",
        recover,
        "--",
        "./app",
        "run",
    ];
    let output = run(&mut repair(&project, &arguments), 1);
    let told = text(&output.stderr);
    assert!(
        told.contains("the crash test failed") && told.contains("nothing was changed"),
        "{told}"
    );
}

#[test]
fn a_crash_test_needs_a_recovery_that_works() {
    let project = Project::new(SOURCE);
    for (arguments, words) in [
        (
            &["--build", BUILD, "--check", "true", "--", "./app", "run"][..],
            &["--check is about the crash test", "--recover"][..],
        ),
        (
            &["--build", BUILD, "--recover", "false", "--", "./app", "run"],
            &["the crash test", "fails on the files as", "crashproof crash"],
        ),
        (
            &[
                "--build",
                BUILD,
                "--recover",
                "true",
                "--strategy",
                "x",
                "--",
                "./app",
                "run",
            ],
            &["the crash test", "--strategy"],
        ),
    ] {
        let mut command = support::crashproof();
        command.current_dir(project.path("src")).arg("repair").args(arguments);
        let output = run(command.env("TMPDIR", project.path("tmp")), 2);
        let told = text(&output.stderr);
        assert!(words.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
        assert!(!told.contains("crashproof-repair-"), "a path of the copy: {told}");
    }
    project.assert_untouched();
}

#[test]
fn a_step_that_ignores_the_signal_is_ended_and_nothing_is_left() {
    let project = Project::new(SOURCE);
    let marker = project.path("started");
    let build = format!("trap '' TERM; touch {}; while :; do sleep 0.1; done", marker.display());
    let mut child = project
        .repair(&["--build", &build, "--recover", "true", "--", "./app", "run"])
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !marker.exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the build did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(15),
        "{status}"
    );
    project.assert_untouched();
}

/// Command lines of the processes that have the folder of the project in their environment.
fn running(project: &Project) -> Vec<String> {
    let mark = project.path("tmp").display().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let of_project = entries.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        text(&environment).contains(&mark)
    });
    of_project
        .map(|entry| text(&fs::read(entry.path().join("cmdline")).unwrap_or_default()).replace('\0', " "))
        .collect()
}

/// Stops a repair in its crash test, as soon as `is_there`.
fn stopped_in_the_crash_test(recover: &str, is_there: impl Fn(&Project) -> bool) {
    let project = Project::new(SOURCE);
    let mut child = project
        .repair(&[
            "--build",
            BUILD,
            "--jobs",
            "2",
            "--timeout",
            "100s",
            "--recover",
            recover,
        ])
        .args(["--", "./app", "run"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !is_there(&project) {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "the crash test did not start"
        );
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let stopped = Instant::now();
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(asked.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&output.status),
        Some(2),
        "{}: {}",
        output.status,
        text(&output.stderr)
    );
    while !running(&project).is_empty() {
        assert!(
            stopped.elapsed() < Duration::from_secs(20),
            "left running: {:?}",
            running(&project)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        stopped.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        stopped.elapsed()
    );
    project.assert_untouched();
}

#[test]
fn a_recovery_that_hangs_is_ended_with_the_repair() {
    stopped_in_the_crash_test("sleep 67", |project| {
        running(project).iter().any(|process| process.trim_end() == "sleep 67")
    });
}

#[test]
fn a_crash_test_is_ended_with_the_repair_and_nothing_is_left() {
    stopped_in_the_crash_test("sleep 0.5; ./app recover", |project| {
        let children = |folder: std::path::PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let states = children(project.path("tmp")).map(|copies| copies.path().join("repair.state/crashproof/crash"));
        let mut journals = states.flat_map(children).map(|test| test.path().join("journal"));
        // Its header has 24 bytes.
        journals.any(|journal| journal.metadata().is_ok_and(|metadata| metadata.len() > 24))
    });
}

/// A program with a recovery of its own, repaired and applied: the finding, what was told, and the source as it is then.
fn repaired(source: &str, build: &str, setup: &str) -> (Value, String, String) {
    let project = Project::new(source);
    let given = [
        "--build",
        build,
        "--setup",
        setup,
        "--recover",
        "./app recover",
        "--apply",
        "--",
        "./app",
        "run",
    ];
    let output = run(&mut repair(&project, &given), 0);
    let patched = project.source();
    (project.json(), text(&output.stderr), patched)
}

/// What `SOURCE` has, with another body of `put` and another condition of the recovery.
fn with(put: &str, wrong: &str) -> String {
    let source = SOURCE
        .replace(
            "#include <stdlib.h>\n",
            "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n",
        )
        .replace(
            "\twords[8] = value;\n\twords[0] = 1;\n\tpersist(&words[0], sizeof words[0]);\n",
            put,
        )
        .replace("return words[0] == 1 && words[8] != 42;", wrong);
    assert!(source.contains(put) && source.contains(wrong));
    source
}

#[test]
fn what_persists_too_late_moves_in_front_of_the_output() {
    let put = "\twords[0] = value;\n\tdprintf(1, \"done\\n\");\n\tpersist(&words[0], sizeof words[0]);\n";
    let wrong = "{\n\t\tFILE *output = fopen(getenv(\"CRASHPROOF_OUTPUT\") ? : \"/dev/null\", \"r\");\n\
                 \t\treturn output && fgetc(output) == 'd' && words[0] != 42;\n\t}";
    let source = with(put, wrong);
    let (json, told, patched) = repaired(&source, BUILD, "rm -f pool");
    assert_eq!(
        states(&json),
        [("crash-durability".to_owned(), "repaired".to_owned())],
        "{told}"
    );
    assert_eq!(json["verification"]["verified"], true);
    let right = "\twords[0] = value;\n\tpersist(&words[0], sizeof words[0]);\n\tdprintf(1, \"done\\n\");\n";
    assert_eq!(patched, source.replace(put, right), "{told}");
}

#[test]
fn fields_of_one_word_become_one_store() {
    let put = "\tstruct pair *pair = (struct pair *)words;\n\tpair->low = value;\n\tpair->high = value + 1;\n\tpersist(pair, sizeof *pair);\n";
    let wrong = "{\n\t\tstruct pair *pair = (struct pair *)words;\n\t\treturn pair->high != (pair->low ? pair->low + 1 : 0);\n\t}";
    let pair = "struct pair {\n\t_Alignas(8) uint32_t low;\n\tuint32_t high;\n};\n\nstatic void persist(";
    let source = with(put, wrong).replace("static void persist(", pair);
    let (json, told, patched) = repaired(&source, BUILD, "rm -f pool");
    assert_eq!(
        states(&json),
        [("crash-atomicity".to_owned(), "repaired".to_owned())],
        "{told}"
    );
    assert_eq!(
        (
            &json["verification"]["verified"],
            &json["verification"]["crash"]["after"]
        ),
        (&json!(true), &json!(0))
    );
    assert!(
        patched.contains("__atomic_store_n((unsigned long __attribute__((may_alias)) *)&pair->low, "),
        "{patched}"
    );
    assert!(!patched.contains("pair->high = "), "{patched}");
}

/// `to` has no snapshot: a crash in the transaction takes `from` back, and not it.
const TRANSACTION: &str = r#"#include <libpmemobj.h>
#include <string.h>

struct account {
	uint64_t from;
	uint64_t gap[16];
	uint64_t to;
};

static void transfer(PMEMobjpool *pool, struct account *account, uint64_t amount)
{
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(&account->from, sizeof(account->from));
		account->from -= amount;
		account->to += amount;
		pmemobj_persist(pool, &account->to, sizeof(account->to));
	} TX_END
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int setup = strcmp(argv[1], "setup") == 0;
	PMEMobjpool *pool = setup ? pmemobj_create("pool", "accounts", PMEMOBJ_MIN_POOL, 0644) : pmemobj_open("pool", "accounts");
	if (!pool)
		return 2;
	struct account *account = pmemobj_direct(pmemobj_root(pool, sizeof(struct account)));
	if (setup) {
		account->from = 100;
		pmemobj_persist(pool, account, sizeof *account);
	} else if (strcmp(argv[1], "recover") == 0) {
		return account->from + account->to != 100;
	} else {
		transfer(pool, account, 10);
	}
	pmemobj_close(pool);
	return 0;
}
"#;

#[test]
fn a_missing_snapshot_is_taken() {
    let build = "$CC -g -O2 -o app app.c -lpmemobj";
    let (json, told, patched) = repaired(TRANSACTION, build, "rm -f pool && ./app setup");
    assert_eq!(
        states(&json),
        [("crash-atomicity".to_owned(), "repaired".to_owned())],
        "{told}"
    );
    assert_eq!(json["verification"]["verified"], true);
    let store = "\t\taccount->to += amount;\n";
    let right = format!("\t\tpmemobj_tx_add_range_direct(&account->to, sizeof(account->to));\n{store}");
    assert_eq!(patched, TRANSACTION.replace(store, &right), "{told}");
}
