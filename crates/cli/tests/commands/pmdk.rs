//! The example structures of Debian's libpmemobj-dev on the stock library: recorded completely, with the results of a
//! native run, and without a durability finding that is not a true one (`docs/pmdk-examples.md` says what is true).

use crate::support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::pmdk::{EXAMPLES, build, sources_in};
use support::{compile, crashproof, run, text};

const OPERATIONS: &str = "2000";

/// True durability findings in the examples, as (structure, kind, function).
const TRUE_FINDINGS: &[(&str, &str, &str)] = &[];

/// Runs the program natively and under `check`, and returns the report.
fn check(program: &Path, arguments: &[&str], input: &str, structure: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let feed = |command: &mut Command| {
        let path = folder.path().join("input");
        std::fs::write(&path, input).unwrap();
        command.stdin(std::fs::File::open(path).unwrap());
    };
    let fill = |pool: &str| -> Vec<String> {
        let pool = folder.path().join(pool).display().to_string();
        arguments.iter().map(|a| a.replace("POOL", &pool)).collect()
    };
    let mut native = Command::new(program);
    feed(native.args(fill("native")).env("PMEM_IS_PMEM_FORCE", "1"));
    let native = run(&mut native, 0);
    let json = folder.path().join("report.json");
    let mut recorded = crashproof();
    feed(
        recorded
            .arg("check")
            .arg("--json")
            .arg(&json)
            .arg("--")
            .arg(program)
            .args(fill("recorded")),
    );
    let recorded = recorded.output().unwrap();
    assert_eq!(
        text(&recorded.stdout),
        text(&native.stdout),
        "{structure}: another output than natively"
    );
    let report = std::fs::read(&json).unwrap_or_else(|_| panic!("{structure}: no report:\n{}", text(&recorded.stderr)));
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["trace"]["complete"], true, "{structure}: {}", report["trace"]);
    assert_eq!(report["program"]["status"], 0, "{structure}");
    report
}

fn assert_durable(structure: &str, report: &Value) {
    for finding in report["findings"].as_array().unwrap() {
        let (kind, function) = (
            finding["kind"].as_str().unwrap(),
            finding["function"].as_str().unwrap_or("?"),
        );
        let known = TRUE_FINDINGS.contains(&(structure, kind, function));
        assert!(
            known || !matches!(kind, "missing-flush" | "missing-fence"),
            "{structure}: {finding:#}"
        );
    }
    for (_, kind, function) in TRUE_FINDINGS.iter().filter(|(s, _, _)| *s == structure) {
        let found = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["kind"] == *kind && f["function"] == *function);
        assert!(found, "{structure}: {kind} in {function} is not found any more");
    }
}

#[test]
fn maps() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("map_driver");
    let mut sources = sources_in("map", "map_");
    sources.push(format!("{EXAMPLES}/map/map.c"));
    for folder in ["tree_map", "hashmap", "list_map"] {
        sources.extend(sources_in(folder, ""));
    }
    build("map_driver", &sources, &driver);
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
        assert_durable(map, &check(&driver, &[map, "POOL", OPERATIONS], "", map));
    }
}

#[test]
fn queue_and_list() {
    let folder = tempfile::tempdir().unwrap();
    for structure in ["queue", "list"] {
        let driver = folder.path().join(structure);
        build(&format!("{structure}_driver"), &[], &driver);
        assert_durable(structure, &check(&driver, &["POOL", OPERATIONS], "", structure));
    }
}

#[test]
fn string_store() {
    let folder = tempfile::tempdir().unwrap();
    for variant in ["string_store", "string_store_tx", "string_store_tx_type"] {
        let writer = folder.path().join(variant);
        let source = format!("{EXAMPLES}/{variant}/writer.c");
        compile("gcc", &["-g", "-O2", "-w", &source, "-lpmemobj"], &writer);
        assert_durable(variant, &check(&writer, &["POOL"], "persist\n", variant));
    }
}
