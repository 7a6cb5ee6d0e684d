//! What CI services and editors read: JUnit XML, lines, and which findings are new.

use std::path::Path;
use std::process::Command;

use crate::common::*;
use crashproof_finding::*;
use crashproof_render::*;

fn suite(name: &str, report: Report) -> Suite {
    Suite {
        name: name.to_owned(),
        report: Ok(report),
    }
}

/// By the schema beside the tests, with xmllint.
fn validate(xml: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("junit.xml");
    std::fs::write(&file, xml).expect("written");
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/junit.xsd");
    let mut xmllint = Command::new("xmllint");
    xmllint.args(["--noout", "--nonet", "--schema"]).args([&schema, &file]);
    let output = xmllint.output().expect("xmllint runs: apt-get install libxml2-utils");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{xml}");
}

#[test]
fn junit_validates_against_the_schema() {
    let mut odd = missing_flush();
    odd.message = "a < b && \"c\" > 'd' \u{1}\u{ffff} ü".to_owned();
    odd.file = Some("dir & co/<a>.c".into());
    odd.line = Some(0);
    let mut incomplete = report(vec![odd, finding(Kind::RedundantFence, "", vec![])]);
    incomplete.trace.complete = false;
    incomplete.trace.incomplete = vec!["the disk was full".into()];
    let mut known = every_kind();
    known.known = vec![0, 2];
    known.stats = Some(stats());
    known.left_out = vec![FileLeftOut::new("a<b>.lock".into(), LeftOutReason::LockFile, None)];
    let failed = Suite {
        name: "crash b".to_owned(),
        report: Err("the recovery fails\non the files as they were".to_owned()),
    };
    let suites = [
        suite("check \"a\"", incomplete),
        suite("crash a", known),
        suite("check b", report(Vec::new())),
        failed,
    ];
    validate(&to_junit(&suites, Severity::Note, sources().path()));
    validate(&to_junit(&suites, Severity::Error, sources().path()));
    validate(&to_junit(&[], Severity::Note, sources().path()));
}

#[test]
fn junit_counts_what_fails_and_what_does_not() {
    let report = Report {
        known: vec![1],
        ..report(vec![
            missing_flush(),
            finding(Kind::MissingFence, "known", stack([frame("append", "log.c", 11, 2)])),
            finding(Kind::RedundantFence, "fence", stack([frame("main", "log.c", 21, 2)])),
        ])
    };
    let xml = to_junit(&[suite("check", report)], Severity::Error, sources().path());
    insta::assert_snapshot!(xml);
}

#[test]
fn lines_for_editors() {
    let mut report = report(vec![
        missing_flush(),
        crash_order(),
        finding(
            Kind::RedundantFence,
            "fence",
            vec![library(Some("pmem_drain"), "/usr/lib/libpmem.so.1", 0x1f0)],
        ),
        finding(Kind::RedundantFlush, "known", stack([frame("append", "log.c", 13, 2)])),
    ]);
    report.known = vec![3];
    insta::assert_snapshot!(render_gnu(&report, sources().path()));
}

#[test]
fn files_are_named_for_editors_and_ci() {
    let report = Report {
        files: vec![FileLookedAt {
            path: "/db/data.mdb".into(),
            stores: 7,
            ..FileLookedAt::default()
        }],
        left_out: vec![FileLeftOut::new("/db/lock.mdb".into(), LeftOutReason::LockFile, None)],
        ..report(vec![missing_flush()])
    };
    let gnu = render_gnu(&report, sources().path());
    let notes = "\ncrashproof: note: persistent memory: data.mdb (7 stores)\n\
                 crashproof: note: left out: lock.mdb (a lock file; --pm lock.mdb)\n";
    assert!(gnu.ends_with(notes), "{gnu}");
    let xml = to_junit(&[suite("check", report)], Severity::Error, sources().path());
    validate(&xml);
    let output = "<system-out>persistent memory: data.mdb (7 stores)\n\
                  left out: lock.mdb (a lock file; --pm lock.mdb)</system-out>\n  </testsuite>";
    assert!(xml.contains(output), "{xml}");
}

/// The findings of `after` that are new, and how many of `before` are gone.
fn compare(before: Vec<Finding>, after: Vec<Finding>) -> (Vec<usize>, usize) {
    let baseline = Baseline::parse(&to_json(&report(before)).expect("serialises")).expect("a baseline");
    let mut after = report(after);
    baseline.compare(&mut after);
    let new = (0..after.findings.len())
        .filter(|&index| !after.is_known(index))
        .collect();
    (new, baseline.gone([&after], |_| true))
}

fn lost(function: &str, file: &str, line: u32) -> Finding {
    finding(
        Kind::MissingFlush,
        &format!("store of 8 bytes at offset {line:#x} of pool is never flushed"),
        stack([frame(function, file, line, 2)]),
    )
}

#[test]
fn a_baseline_knows_findings_by_what_an_edit_does_not_change() {
    let old = || vec![lost("f", "/a/src/log.c", 10), lost("g", "/a/src/log.c", 20)];
    assert_eq!(compare(old(), old()), (vec![], 0));
    // Lines were added above, and the source lies elsewhere.
    let moved = vec![lost("f", "/b/log.c", 17), lost("g", "/b/log.c", 27)];
    assert_eq!(compare(old(), moved), (vec![], 0));
    // Another function, another kind.
    let mut other = old();
    other.push(lost("h", "/a/src/log.c", 30));
    other.push(Finding {
        kind: Kind::MissingFence,
        ..lost("f", "/a/src/log.c", 10)
    });
    assert_eq!(compare(old(), other), (vec![2, 3], 0));
    assert_eq!(compare(old(), vec![lost("g", "log.c", 20)]), (vec![], 1));
    assert_eq!(compare(Vec::new(), old()), (vec![0, 1], 0));
}

#[test]
fn a_baseline_counts_places_that_look_the_same() {
    let old = || vec![lost("f", "log.c", 10), lost("f", "log.c", 12)];
    // A third store of the function: the two known lines are known.
    let three = vec![lost("f", "log.c", 10), lost("f", "log.c", 11), lost("f", "log.c", 12)];
    assert_eq!(compare(old(), three), (vec![1], 0));
    // All have moved: which of them is the new one cannot be said, but that there is one.
    let moved = vec![lost("f", "log.c", 20), lost("f", "log.c", 21), lost("f", "log.c", 22)];
    assert_eq!(compare(old(), moved), (vec![2], 0));
    // Another call path to a known place.
    let mut paths = old();
    paths.push(Finding {
        stack: stack([frame("f", "log.c", 10, 2), frame("other", "log.c", 50, 2)]),
        ..lost("f", "log.c", 10)
    });
    assert_eq!(compare(old(), paths), (vec![], 0));
}

#[test]
fn a_baseline_of_crashes_and_of_tests() {
    assert_eq!(
        compare(vec![crash_order()], vec![crash_order(), crash_atomicity()]),
        (vec![1], 0)
    );
    let text = |findings| to_json(&report(findings)).expect("serialises");
    let tests = format!(
        r#"{{"version": 1, "tests": [{{"name": "a", "check": {}, "crash": null}}, {{"name": "b", "check": null, "crash": {}}}]}}"#,
        text(vec![missing_flush()]),
        text(vec![crash_order()])
    );
    let baseline = Baseline::parse(&tests).expect("a baseline");
    let mut both = report(vec![missing_flush(), crash_order()]);
    baseline.compare(&mut both);
    assert_eq!(both.known, [0, 1]);
    assert!(!both.fails(Severity::Note));
    let check = report(vec![missing_flush()]);
    assert_eq!(baseline.gone([&check], |_| true), 1);
    assert_eq!(baseline.gone([&check], |kind| !kind.name().starts_with("crash-")), 0);
}

#[test]
fn what_is_no_baseline_is_refused() {
    let error = |text: &str| Baseline::parse(text).unwrap_err().to_string();
    assert!(error("no json").contains("not JSON"), "{}", error("no json"));
    for text in ["[]", "{}", "{\"tests\": 7}", "{\"version\": \"2.1.0\", \"runs\": []}"] {
        assert!(error(text).contains("no report"), "{text}");
    }
}

#[test]
fn severities_that_fail() {
    let mut report = report(vec![
        finding(Kind::RedundantFence, "fence", vec![]),
        finding(Kind::TransientData, "data", vec![]),
    ]);
    let fails =
        |report: &Report| [Severity::Error, Severity::Warning, Severity::Note].map(|severity| report.fails(severity));
    assert_eq!(fails(&report), [false, true, true]);
    report.known = vec![0];
    assert_eq!(fails(&report), [false, false, true]);
    report.known = vec![0, 1];
    assert_eq!(fails(&report), [false, false, false]);
}
