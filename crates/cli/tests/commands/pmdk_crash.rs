//! The example structures of Debian's libpmemobj-dev under crash test, on the stock library: 200 operations each, and a
//! verifier that demands what was acknowledged. Every finding must be one that `docs/pmdk-examples.md` explains.

use crate::support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::pmdk::{EXAMPLES, build, sources_in};
use support::{crashproof, text};

const OPERATIONS: &str = "200";
/// States of one structure, not seconds: what a test covers must not depend on the machine. The rest is left to longer runs by hand.
const BUDGET: &str = "60";

/// True findings, as (structure, kind, function).
const TRUE_FINDINGS: &[(&str, &str, &str)] = &[("hashmap_atomic", "crash-atomicity", "hm_atomic_rebuild_finish")];

/// Crash-tests `program setup|run|verify ARGUMENTS`, first quickly and then as far as the budget goes.
fn crash(structure: &str, program: &Path, arguments: &[&str]) {
    let folder = program.parent().unwrap();
    let name = |mode: &str| format!("'{}' {mode} {}", program.display(), arguments.join(" "));
    for options in [
        &["--strategy", "prefix"][..],
        &["--strategy", "dpor", "--max-states", BUDGET],
    ] {
        let json = folder.join("report.json");
        let mut command: Command = crashproof();
        command
            .current_dir(folder)
            .args(["crash", "--setup", &name("setup"), "--recover", &name("verify")])
            .args(options)
            .arg("--json")
            .arg(&json)
            .arg("--")
            .arg(program)
            .arg("run")
            .args(arguments);
        let output = command.output().unwrap();
        let status = output.status.code().unwrap_or(-1);
        assert!(status < 2, "{structure}: status {status}\n{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["trace"]["complete"], true, "{structure}: {}", report["trace"]);
        assert!(
            report["stats"]["states_tested"].as_u64().unwrap() > 50,
            "{structure}: {}",
            report["stats"]
        );
        for finding in report["findings"].as_array().unwrap() {
            let found = (
                structure,
                finding["kind"].as_str().unwrap(),
                finding["function"].as_str().unwrap_or("?"),
            );
            assert!(TRUE_FINDINGS.contains(&found), "{structure}, {options:?}: {finding:#}");
        }
    }
}

#[test]
fn maps() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("map_crash");
    let mut sources = sources_in("map", "map_");
    sources.push(format!("{EXAMPLES}/map/map.c"));
    for folder in ["tree_map", "hashmap", "list_map"] {
        sources.extend(sources_in(folder, ""));
    }
    build("map_crash", &sources, &driver);
    for map in [
        "btree",
        "ctree",
        "rbtree",
        "rtree",
        "hashmap_tx",
        "hashmap_atomic",
        "hashmap_rp",
        "skiplist",
    ] {
        crash(map, &driver, &[map, "pool", OPERATIONS]);
    }
}

#[test]
fn queue_and_list() {
    let folder = tempfile::tempdir().unwrap();
    for structure in ["queue", "list"] {
        let driver = folder.path().join(structure);
        build(&format!("{structure}_crash"), &[], &driver);
        crash(structure, &driver, &["pool", OPERATIONS]);
    }
}
