//! A mapped PM file that is truncated, or whose ranges are moved, by other means than stores: it is in the trace, or the trace is incomplete.

use tempfile::TempDir;

use crate::support::{compile, crashproof, text};

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = crate::support::source("truncated/truncate.c");
    compile("gcc", &["-g", "-O1", "-Wall", &source], &folder.path().join("truncate"));
    folder
}

/// The sizes that the trace says the file got, and what the recorder says. `None`: the file system cannot do it.
fn record(folder: &TempDir, how: &str) -> Option<(Vec<String>, String)> {
    let run = |arguments: &[&str]| {
        crashproof()
            .current_dir(folder.path())
            .args(arguments)
            .output()
            .unwrap()
    };
    let recorded = run(&["record", "-o", "trace", "--", "./truncate", how]);
    if recorded.status.code() == Some(77) {
        return None;
    }
    assert!(recorded.status.success(), "{how}: {recorded:?}");
    let dumped = run(&["dump", "--kind", "resize", "trace"]);
    let sizes = text(&dumped.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    Some((sizes, text(&recorded.stderr)))
}

#[test]
fn an_open_that_truncates_is_recorded() {
    let folder = folder();
    for how in [
        "open",
        "openat",
        "creat",
        "fopen",
        "raw-open",
        "raw-openat",
        "raw-creat",
        "raw-openat2",
        "number-openat",
        "number-openat2",
        "number-creat",
    ] {
        let (sizes, said) = record(&folder, how).unwrap();
        assert_eq!(sizes, ["0", "16384"], "{how}");
        assert!(!said.contains("incomplete"), "{how}: {said}");
    }
    for how in ["not", "path"] {
        let (sizes, said) = record(&folder, how).unwrap();
        assert!(
            sizes.is_empty() && !said.contains("incomplete"),
            "{how}: {sizes:?} {said}"
        );
    }
}

#[test]
fn what_is_written_after_the_last_mapping_is_compared() {
    let folder = folder();
    let (sizes, said) = record(&folder, "stdio").unwrap();
    assert_eq!(sizes, ["0"]);
    assert!(said.contains("incomplete"), "{said}");
}

#[test]
fn ranges_that_are_moved_make_the_trace_incomplete() {
    let folder = folder();
    for how in ["collapse", "insert"] {
        if let Some((_, said)) = record(&folder, how) {
            assert!(
                said.contains("incomplete") && said.contains("collapsed or inserted"),
                "{how}: {said}"
            );
        }
    }
}
