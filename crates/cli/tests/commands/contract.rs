//! What scripts may rely on: a trace checked later gives what checking at once gives, and a store that is lost says by when
//! it was due.

use crate::support;

use serde_json::Value;
use support::{compile, crashproof, text};

const PROGRAMS: [&str; 3] = ["flush/early-return.c", "fence/forgotten.c", "redundant/double-flush.c"];

/// The reports of checking a corpus program at once and of recording it first.
fn both_ways(source: &str) -> [Value; 2] {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let path = format!("{}/../../corpus/{source}", env!("CARGO_MANIFEST_DIR"));
    compile("gcc", &["-g", "-O1", &path], &place("program"));
    let run = |arguments: &[&str], files: &[&str]| {
        let mut command = crashproof();
        command
            .args(arguments)
            .args(files.iter().map(|f| if *f == "--" { "--".into() } else { place(f) }));
        let output = command.output().unwrap();
        assert_ne!(output.status.code(), Some(2), "{command:?}: {}", text(&output.stderr));
    };
    run(&["check", "--json"], &["at_once", "--", "program", "pool"]);
    std::fs::remove_file(place("pool")).unwrap();
    run(&["record", "-o"], &["trace", "--", "program", "pool"]);
    run(&["check", "--json"], &["later", "trace"]);
    ["at_once", "later"].map(|name| serde_json::from_slice(&std::fs::read(place(name)).unwrap()).unwrap())
}

#[test]
fn recording_first_gives_the_same_findings() {
    for source in PROGRAMS {
        let [at_once, later] = both_ways(source);
        assert_eq!(at_once, later, "{source}");
        assert!(!at_once["findings"].as_array().unwrap().is_empty(), "{source}");
    }
}

#[test]
fn a_lost_store_says_by_when_it_was_due() {
    let mut due = Vec::new();
    for source in PROGRAMS {
        let [report, _] = both_ways(source);
        for finding in report["findings"].as_array().unwrap() {
            if matches!(finding["kind"].as_str(), Some("missing-flush" | "missing-fence")) {
                let by = &finding["durable_by"];
                assert!(
                    matches!(by["kind"].as_str(), Some("fence" | "tx-end" | "unmap" | "exit")),
                    "{finding:#}"
                );
                assert!(by["stack"].is_array(), "{finding:#}");
                due.push(finding["kind"].as_str().unwrap().to_owned());
            }
        }
    }
    for kind in ["missing-flush", "missing-fence"] {
        assert!(due.iter().any(|found| found == kind), "no {kind} in {PROGRAMS:?}");
    }
}
