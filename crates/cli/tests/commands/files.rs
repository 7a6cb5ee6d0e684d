//! Which files are looked at, on real programs: what is not data makes no findings, and the report says what was left out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support;
use serde_json::Value;
use support::{compile, crashproof, text};

/// The report of `crashproof check`, whatever its exit status is.
fn check(options: &[&str], program: &[&str], folder: &Path, input: &str) -> Value {
    let json = folder.join("report.json");
    let mut command = crashproof();
    command
        .arg("check")
        .arg("--json")
        .arg(&json)
        .args(options)
        .arg("--")
        .args(program);
    command.current_dir(folder).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let report = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["program"]["status"], 0, "{}", text(&output.stderr));
    // LMDB's lock file holds a robust mutex, which cannot be recorded whole: only who selects it is told.
    let selected = options.contains(&"lock.mdb");
    assert_eq!(report["trace"]["complete"], !selected, "{}", text(&output.stderr));
    report
}

/// Names and reasons of the files that were left out.
fn left_out(report: &Value) -> Vec<(String, String)> {
    let files = report["left_out"].as_array().map_or(&[][..], Vec::as_slice);
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let name = |path: String| path.rsplit('/').next().unwrap().to_owned();
    files
        .iter()
        .map(|file| (name(word(&file["path"])), word(&file["reason"])))
        .collect()
}

fn errors(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .filter(|finding| finding["severity"] == "error")
        .collect()
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok() || panic!("{program} is missing: see tools/deps.sh")
}

/// One page, as `mdb_dump` prints it.
const LMDB_INPUT: &str = "VERSION=3\nformat=print\ntype=btree\nmapsize=1048576\nmaxreaders=126\nHEADER=END\n \
                          one\n 1\n two\n 2\n three\n 3\nDATA=END\n";

#[test]
fn the_lock_file_of_lmdb_is_not_data() {
    assert!(is_installed("mdb_load"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("db")).unwrap();
    let report = check(&[], &["mdb_load", "db"], folder.path(), LMDB_INPUT);
    assert_eq!(errors(&report), [] as [&Value; 0]);
    assert_eq!(left_out(&report), [("lock.mdb".to_owned(), "lock-file".to_owned())]);
    assert_eq!(report["left_out"][0]["option"], "--pm lock.mdb");
    // With --pm it is looked at, and has what was left out.
    std::fs::create_dir(folder.path().join("again")).unwrap();
    let selected = check(&["--pm", "lock.mdb"], &["mdb_load", "again"], folder.path(), LMDB_INPUT);
    let files = selected["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{selected:#}");
    assert!(
        files[0]["path"].as_str().unwrap().ends_with("/lock.mdb"),
        "{selected:#}"
    );
    assert!(files[0]["stores"].as_u64() > Some(0), "{selected:#}");
}

#[test]
fn the_index_of_sqlite_is_not_data() {
    let folder = tempfile::tempdir().unwrap();
    let statements =
        "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (1),(2); SELECT count(*) FROM t;";
    let report = check(&[], &["sqlite3", "a.db", statements], folder.path(), "");
    assert_eq!(report["findings"], Value::Array(Vec::new()), "{report:#}");
    assert_eq!(left_out(&report), [("a.db-shm".to_owned(), "sqlite-index".to_owned())]);
}

/// A fence may wait for what was flushed in a file that is left out.
#[test]
fn no_fence_is_redundant_that_a_file_left_out_may_need() {
    let folder = tempfile::tempdir().unwrap();
    let source = crate::support::source("files/two.c");
    compile("gcc", &["-g", "-O1", "-mclwb", &source], &folder.path().join("two"));
    let both = check(&[], &["./two", "a", "b"], folder.path(), "");
    assert_eq!(both["findings"], Value::Array(Vec::new()), "{both:#}");
    let one = check(&["--pm", "a"], &["./two", "a", "b"], folder.path(), "");
    assert_eq!(one["findings"], Value::Array(Vec::new()), "{one:#}");
    assert_eq!(left_out(&one), [("b".to_owned(), "not-selected".to_owned())]);
    // One that nothing needs is found if all is seen.
    let redundant = check(&[], &["./two", "a", "b", "redundant"], folder.path(), "");
    assert_eq!(redundant["findings"][0]["kind"], "redundant-fence", "{redundant:#}");
}

/// A program without the runtime changes a file that no recorded process has mapped any more.
#[test]
fn what_only_an_unrecorded_child_changes_makes_the_trace_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let source = crate::support::source("files/outsider.c");
    let built = |flags: &[&str], name| {
        compile(
            "gcc",
            &[&["-g", "-mclwb", &source], flags].concat(),
            &folder.path().join(name),
        )
    };
    built(&[], "program");
    built(&["-static"], "outsider");
    let check = |what: &str, status| {
        let mut command = crashproof();
        command.args(["check", "--", "./program", "pool", what, "./outsider"]);
        text(&support::run(command.current_dir(folder.path()), status).stderr)
    };
    let changed = check("write", 2);
    assert!(
        changed.contains("pool: 1 byte differs, at offset 0x64 from what the log replays to"),
        "{changed}"
    );
    let read = check("read", 0);
    assert!(read.contains("trace complete"), "{read}");
}

/// A file that is made without a name and gets one in another directory before it is mapped.
#[test]
fn a_file_has_the_name_that_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let source = crate::support::source("files/unnamed.c");
    compile("gcc", &["-g", "-mclwb", &source], &folder.path().join("program"));
    for way in ["proc", "empty", "renamed"] {
        let name = format!("there/{way}");
        std::fs::create_dir_all(folder.path().join("there")).unwrap();
        let report = check(&[], &["./program", way, &name], folder.path(), "");
        let path = folder.path().join(&name).canonicalize().unwrap();
        assert_eq!(report["files"][0]["path"], path.to_str().unwrap(), "{report:#}");
    }
    // One that a program without the runtime has named: nobody has told where.
    let mut command = crashproof();
    command.args(["check", "--", "./program", "unseen", "there/unseen"]);
    let said = text(&support::run(command.current_dir(folder.path()), 2).stderr);
    assert!(
        said.contains("a PM file no longer has the name by which it was opened"),
        "{said}"
    );
}

#[test]
fn every_report_names_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{}/../../corpus/files/deleted.c", env!("CARGO_MANIFEST_DIR"));
    compile("gcc", &["-g", &source], &folder.path().join("program"));
    let page = folder.path().join("page.html");
    let mut command = crashproof();
    command
        .arg("check")
        .arg("--html")
        .arg(&page)
        .args(["--", "./program", "pool"]);
    let output = support::run(command.current_dir(folder.path()), 1);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("persistent memory: pool (1 store, 1 finding)"),
        "{stderr}"
    );
    let deleted = "pool.scratch (2 stores; deleted by the program, 2 findings not shown; --pm pool.scratch)";
    assert!(stderr.contains(deleted), "{stderr}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("deleted by the program, 2 findings not shown"));
    // --pm shows them.
    let report = check(&["--pm", "pool.scratch"], &["./program", "pool"], folder.path(), "");
    assert_eq!(errors(&report).len(), 2, "{report:#}");
    assert_eq!(left_out(&report), [("pool".to_owned(), "not-selected".to_owned())]);
}

#[test]
fn opens_that_failed_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("open.c");
    let code = "#include <fcntl.h>\nint main(void) { return open(\"missing/pool\", O_RDWR) >= 0; }\n";
    std::fs::write(&source, code).unwrap();
    compile("gcc", &[source.to_str().unwrap()], &folder.path().join("open"));
    let report = check(&[], &["./open"], folder.path(), "");
    assert_eq!(left_out(&report), [("pool".to_owned(), "open-failed".to_owned())]);
    assert_eq!(report["left_out"][0]["errno"], 2);
}

/// Makes a named semaphore, and stores to a file in /dev/shm that it opens by its path: as large as a semaphore, and named like one.
const SEMAPHORE: &str = r#"
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    sem_t *semaphore = sem_open(argv[1], O_CREAT | O_EXCL, 0600, 1);
    if (semaphore == SEM_FAILED || sem_wait(semaphore) != 0 || sem_post(semaphore) != 0 || sem_unlink(argv[1]) != 0)
        return 2;
    if (argc == 2)
        return 0;
    int fd = open(argv[2], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(sem_t)) != 0)
        return 3;
    volatile long *data = mmap(0, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    data[0] = 7;
    return 0;
}
"#;

#[test]
fn a_semaphore_is_not_data_and_a_file_like_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("semaphore.c");
    std::fs::write(&source, SEMAPHORE).unwrap();
    let program = folder.path().join("semaphore");
    compile("gcc", &["-g", source.to_str().unwrap(), "-pthread"], &program);
    let name = format!("crashproof-test-{}", std::process::id());
    let data = format!("/dev/shm/sem.{name}-data");
    let slashed = format!("/{name}");
    let report = check(&[], &["./semaphore", &slashed, &data], folder.path(), "");
    std::fs::remove_file(&data).unwrap();
    assert_eq!(errors(&report).len(), 1, "{report:#}");
    assert_eq!(report["files"][0]["path"], data.as_str(), "{report:#}");
    let semaphore = [(format!("sem.{name}"), "semaphore".to_owned())];
    assert_eq!(left_out(&report), semaphore);
    // libc maps it unseen: no option brings it back.
    assert_eq!(report["left_out"][0]["option"], Value::Null);
    let report = check(&[], &["./semaphore", &slashed], folder.path(), "");
    assert_eq!((errors(&report).len(), left_out(&report)), (0, semaphore.to_vec()));
    assert_eq!(report["inconclusive"][0]["reason"], "no-stores");
}

/// As a test does with its pool: nothing that it did wrong is shown, so it is not clean.
#[test]
fn findings_in_removed_files_alone_are_not_clean() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("removes");
    compile("gcc", &["-g", &support::source("files/removes.c")], &program);
    let report = check(&[], &["./removes"], folder.path(), "");
    assert_eq!(errors(&report).len(), 0, "{report:#}");
    let doubt = &report["inconclusive"][0];
    assert_eq!(doubt["reason"], "only-deleted-files", "{report:#}");
    assert!(
        doubt["notes"][0]
            .as_str()
            .unwrap()
            .ends_with("1 finding not shown; --pm pool"),
        "{doubt}"
    );
    for (options, program, shown) in [
        (&["--allow-no-stores"][..], &["./removes"][..], 0),
        (&["--pm", "pool"], &["./removes"], 1),
        (&[], &["./removes", "flush"], 0),
    ] {
        let report = check(options, program, folder.path(), "");
        assert_eq!(errors(&report).len(), shown, "{report:#}");
        assert_eq!(report["inconclusive"], Value::Null, "{report:#}");
    }
}

/// A program that looks for many names before it makes one, as databases do.
#[test]
fn many_opens_that_failed_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("opens.c");
    let code = "#include <fcntl.h>\n#include <stdio.h>\n\
                int main(void) { char name[32]; for (int i = 0; i < 200; i++) {\n\
                snprintf(name, sizeof name, \"missing/%d\", i); if (open(name, O_RDWR) >= 0) return 1; }\n\
                return open(\"/\", O_RDWR) >= 0; }\n";
    std::fs::write(&source, code).unwrap();
    compile("gcc", &[source.to_str().unwrap()], &folder.path().join("opens"));
    let report = check(&[], &["./opens"], folder.path(), "");
    assert_eq!(left_out(&report).len(), 201);
    let mut command = crashproof();
    let output = support::run(command.args(["check", "--", "./opens"]).current_dir(folder.path()), 2);
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    let many = "(cannot be opened for writing: No such file or directory: 0, 1, 2, ...; --json lists them)";
    assert!(said.contains(&format!("left out: 200 files {many}")), "{said}");
    assert!(
        said.contains("left out: / (cannot be opened for writing: Is a directory)"),
        "{said}"
    );
    assert!(!said.contains("missing/3"), "{said}");
}

/// What an earlier version called `missing-flush` is in its report, and is known.
#[test]
fn a_store_without_a_snapshot_is_known_by_its_former_kind() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!(
        "{}/../../corpus/tx/not-snapshotted-not-flushed.c",
        env!("CARGO_MANIFEST_DIR")
    );
    compile("gcc", &["-g", &source, "-lpmemobj"], &folder.path().join("program"));
    let mut report = check(&[], &["./program", "pool"], folder.path(), "");
    let findings = report["findings"].as_array_mut().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        assert_eq!(finding["kind"], "tx-store-not-snapshotted");
        finding["kind"] = "missing-flush".into();
        finding["message"] = "store of 8 bytes at offset 0x3c0550 of pool is never flushed".into();
    }
    std::fs::write(folder.path().join("old.json"), report.to_string()).unwrap();
    std::fs::remove_file(folder.path().join("pool")).unwrap();
    let mut command = crashproof();
    command.args(["check", "--baseline", "old.json", "--", "./program", "pool"]);
    support::run(command.current_dir(folder.path()), 0);
}
