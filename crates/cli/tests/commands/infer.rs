//! `crashproof infer` on the paper's figure 1, from source to conditions: I1 (key before token), I2 (value before token), I3 (tokens together),
//! with the value read under the token's `if` and, in the second shape, after the query returned.

use crate::support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

const OPERATIONS: &str =
    "insert 1 10\ninsert 2 20\nget 1\nupdate 1 11\nget 1\nget 2\nremove 2\nget 2\ninsert 3 30\nupdate 3 31\nget 3\n";

fn record(folder: &TempDir, options: &[&str]) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = folder.path().join("figure1");
    let mut compile = support::crashproof();
    compile.args(["cc", "--deps", "-g", "-O2", "-DDRIVER"]).args(options);
    compile.arg("-I").arg(root.join("include")).arg("-o").arg(&program);
    support::run(compile.arg(root.join("corpus/drivers/figure1.c")), 0);
    let operations = folder.path().join("operations");
    std::fs::write(&operations, OPERATIONS).unwrap();
    let trace = folder.path().join("trace");
    let mut record: Command = support::crashproof();
    record.arg("record").arg("-o").arg(&trace).arg("--").arg(&program);
    record.arg(folder.path().join("pool")).arg("--ops").arg(&operations);
    let last = OPERATIONS.lines().count().to_string();
    support::run(record.args(["--from", "0", "--to", &last]), 0);
    trace
}

fn conditions(trace: &Path) -> Value {
    conditions_by(trace, &[])
}

fn conditions_by(trace: &Path, options: &[&str]) -> Value {
    let mut infer = support::crashproof();
    let inferred = support::run(infer.args(["infer", "--json", "-"]).args(options).arg(trace), 0);
    serde_json::from_slice(&inferred.stdout).unwrap()
}

#[test]
fn figure_1() {
    // In the second shape the value is read by whoever asked.
    for (options, reader_of_key) in [(&[][..], "kv_get"), (&["-DVALUE_AFTER_RETURN"], "query")] {
        let folder = tempfile::tempdir().unwrap();
        let listing = conditions(&record(&folder, options));
        let listed = listing["conditions"].as_array().unwrap();
        let has = |rule: &str, before: &str, after: Option<&str>, function: &str| {
            listed.iter().any(|condition| {
                let field = |side: &str| condition[side]["field"].as_str();
                let ends = |side: &str, name: &str| field(side).is_some_and(|field| field.ends_with(name));
                condition["rule"] == rule
                    && ends("before", before)
                    && after.is_none_or(|after| ends("after", after))
                    && condition["because"]["function"] == function
                    && condition["before"]["line"].is_u64()
            })
        };
        assert!(has("PO3", ".key", Some(".token[]"), reader_of_key), "I1: {listing:#}");
        assert!(has("PO3", ".value", Some(".token[]"), "kv_get"), "I2: {listing:#}");
        assert!(listed.iter().any(|condition| {
            let field = condition["before"]["field"].as_str();
            condition["rule"] == "PA1" && field.is_some_and(|field| field.ends_with(".token[]"))
        }));
        assert_eq!(listing["busiest"].as_array().unwrap().len(), 10);
        assert_eq!(listing["warnings"].as_array().unwrap().len(), 0, "{listing:#}");
    }
}

/// Who called a declared helper relies on the order.
#[test]
fn declared_helpers_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let trace = record(&folder, &["-DVALUE_AFTER_RETURN"]);
    let config = folder.path().join("helpers.toml");
    std::fs::write(&config, "[[helper]]\nfunction = \"query\"\n").unwrap();
    let names = |function: &str, options: &[&str]| {
        let listing = conditions_by(&trace, options);
        let listed = listing["conditions"].as_array().unwrap().iter();
        listed
            .filter(|condition| condition["because"]["function"] == function)
            .count()
    };
    assert!(names("query", &[]) > 0);
    assert_eq!(names("query", &["--config", config.to_str().unwrap()]), 0);
}

#[test]
fn a_trace_without_dependences_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut record = support::crashproof();
    support::run(record.arg("record").arg("-o").arg(&trace).args(["--", "true"]), 0);
    let refused = support::run(support::crashproof().arg("infer").arg(&trace), 2);
    let error = support::text(&refused.stderr);
    assert!(
        error.contains("has no dependences") && error.contains("crashproof cc --deps"),
        "{error}"
    );
    let missing = support::run(support::crashproof().args(["infer", "nothing.trace"]), 2);
    assert!(support::text(&missing.stderr).contains("crashproof record"));
}

/// Slots are used again: what they held before shows.
const REUSED: &str =
    "insert 1 10\nremove 1\ninsert 1 11\nget 1\nupdate 1 12\nget 1\ninsert 2 20\nremove 2\ninsert 2 21\nget 2\n";

/// Crashes figure 1 with a seeded bug and judges by output; its report.
fn crash(bug: &str, strategy: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let mut compile = support::crashproof();
    compile.args(["cc", "--deps", "-g", "-O2", "-DDRIVER", &format!("-D{bug}")]);
    compile.arg("-I").arg(root.join("include")).args(["-o", "figure1"]);
    compile.arg(root.join("corpus/drivers/figure1.c"));
    support::run(compile.current_dir(&folder), 0);
    std::fs::write(folder.path().join("operations"), REUSED).unwrap();
    let mut crash = support::crashproof();
    crash.args([
        "crash",
        "--oracle",
        "output",
        "--ops",
        "operations",
        "--strategy",
        strategy,
    ]);
    crash.args(["--json", "report.json", "--", "./figure1", "pool"]);
    support::run(crash.current_dir(&folder), 1);
    serde_json::from_slice(&std::fs::read(folder.path().join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_finding_names_the_condition_that_it_violates() {
    // A state that violates a condition says so whichever strategy came to it.
    for strategy in ["conditions", "auto"] {
        let report = crash("BUG_INSERT_ORDER", strategy);
        let findings = report["findings"].as_array().unwrap();
        let named = findings.iter().find(|finding| finding["crash"]["violates"].is_object());
        let finding = named.unwrap_or_else(|| panic!("{report:#}"));
        let violates = &finding["crash"]["violates"];
        let text = violates["text"].as_str().unwrap();
        assert_eq!(violates["rule"], "PO3", "{text}");
        assert!(
            text.contains("bucket.token[]`, because kv_get reads `") && text.contains("figure1.c:"),
            "{text}"
        );
        assert_eq!(violates["because"]["function"], "kv_get");
        let note = format!("violates: {text}");
        assert!(
            finding["notes"].as_array().unwrap().contains(&Value::from(note)),
            "{finding:#}"
        );
    }
    let report = crash("BUG_UPDATE_TOKENS", "conditions");
    let findings = report["findings"].as_array().unwrap();
    let texts = findings
        .iter()
        .filter_map(|finding| finding["crash"]["violates"]["text"].as_str());
    let texts: Vec<&str> = texts.collect();
    assert!(texts.iter().any(|text| text.contains("bucket.token[]`")), "{report:#}");
}

/// Clusters (the paper's section 4.4): four insertions fail, on fewer sets of basic blocks, and for one reason.
#[test]
fn states_that_fail_on_one_path_are_one_finding() {
    let report = crash("BUG_INSERT_ORDER", "conditions");
    let findings = report["findings"].as_array().unwrap();
    let wrong_order = findings.iter().filter(|finding| finding["kind"] == "crash-order");
    let [inserted] = wrong_order.collect::<Vec<_>>()[..] else {
        panic!("{report:#}");
    };
    let number = |name: &str| inserted["crash"][name].as_u64().unwrap();
    assert_eq!(number("operations"), 4, "{inserted:#}");
    assert!((1..4).contains(&number("paths")), "{inserted:#}");
    assert!(number("states") >= 4);
}
