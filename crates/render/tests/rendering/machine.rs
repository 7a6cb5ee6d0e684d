//! JSON as the contract has it, SARIF as the schema has it.

use crate::common::*;
use crashproof_finding::*;
use crashproof_render::*;
use serde_json::Value;

fn json(report: &Report) -> Value {
    serde_json::from_str(&to_json(report).expect("serialises")).expect("is JSON")
}

fn sarif(report: &Report) -> Value {
    sarif_in(report, sources().path())
}

fn sarif_in(report: &Report, root: &std::path::Path) -> Value {
    let run = Run {
        id: "check",
        report,
        compared: !report.known.is_empty(),
    };
    serde_json::from_str(&to_sarif(&[run], root).expect("serialises")).expect("is JSON")
}

/// Two places, the first on three call paths, and one of the baseline.
fn counted() -> Report {
    let path = |line| Finding {
        stack: stack([frame("append", "log.c", 14, 13), frame("main", "log.c", line, 2)]),
        ..missing_flush()
    };
    let mut report = report(vec![path(21), path(22), path(23), crash_order(), path(24)]);
    report.findings[4].kind = Kind::RedundantFlush;
    report.known = vec![4];
    report.files = vec![FileLookedAt {
        path: "/mnt/pm/log.pm".into(),
        stores: 7,
        ..FileLookedAt::default()
    }];
    report.count_findings();
    report
}

#[test]
fn the_findings_of_a_file_are_those_that_the_report_shows() {
    let (report, folder) = (counted(), sources());
    assert_eq!(json(&report)["files"][0]["findings"], 5, "as many as JSON has");
    let notifications = &sarif(&report)["runs"][0]["invocations"][0]["toolExecutionNotifications"];
    assert!(
        notifications.to_string().contains("7 stores, 5 findings"),
        "{notifications}"
    );
    let terminal = render(&report, folder.path());
    assert!(terminal.contains("2 errors"), "{terminal}");
    for text in [terminal, render_gnu(&report, folder.path())] {
        assert!(text.contains("log.pm (7 stores, 2 findings)"), "{text}");
    }
    let suite = Suite {
        name: "check".into(),
        report: Ok(report),
    };
    let junit = to_junit(std::slice::from_ref(&suite), Severity::Error, folder.path());
    assert!(
        junit.contains(r#"tests="3""#) && junit.contains("log.pm (7 stores, 3 findings)"),
        "{junit}"
    );
    let options = html::HtmlOptions {
        command: String::new(),
        root: folder.path().to_owned(),
        compared: true,
    };
    let html = html::to_html(&[suite], &options).expect("serialises");
    assert!(
        html.contains("7 stores, 3 findings"),
        "the page groups them as JUnit does"
    );
}

fn awkward_reports() -> Vec<Report> {
    let mut killed = every_kind();
    killed.program = Program {
        asked_to_end: false,
        status: None,
        signal: Some(11),
        command: vec!["./a b".into(), "ü".into()],
    };
    killed.trace.complete = false;
    killed.trace.incomplete = vec!["the disk was full".into()];
    killed.warnings = vec!["an ignore matched nothing".into()];
    let mut odd = finding(
        Kind::MissingFlush,
        "",
        vec![library(None, "/opt/a b/lib%.so", u64::MAX), Frame::default()],
    );
    odd.count = u64::MAX;
    odd.file = None;
    let mut zero = missing_flush();
    zero.file = Some("dir with blank/ü#?.c".into());
    zero.line = Some(0);
    zero.column = Some(0);
    zero.count = 0;
    let nothing = Report {
        program: Program::default(),
        ..report(vec![finding(Kind::RedundantFence, "fence", vec![])])
    };
    vec![
        report(Vec::new()),
        report(vec![missing_flush()]),
        every_kind(),
        killed,
        report(vec![odd, zero]),
        nothing,
        repaired(),
        Report {
            known: vec![0, 3],
            ..every_kind()
        },
    ]
}

/// A report with the patch that repairs one of its findings.
fn repaired() -> Report {
    Report {
        patch: Some(Patch {
            diff: "--- a/log.c\n+++ b/log.c\n@@ -14,2 +14,3 @@\n \tlog->count = log->count + 1;\n+\t_mm_clwb(&log->count);\n \t_mm_sfence();\n"
                .into(),
            files: vec![FileChange {
                path: "log.c".into(),
                replacements: vec![Replacement {
                    line: 15,
                    deleted: 0,
                    inserted: "\t_mm_clwb(&log->count);\n".into(),
                }],
            }],
            verified: true,
            findings: vec![0],
        }),
        ..report(vec![missing_flush(), finding(Kind::RedundantFence, "fence", vec![])])
    }
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let value = json(&report(vec![missing_flush()]));
    assert_eq!(value["version"], 1);
    assert_eq!(value["program"]["status"], 0);
    assert_eq!(value["program"]["signal"], Value::Null);
    assert_eq!(value["trace"]["stores"], 297_123);
    assert_eq!(value["trace"]["flushes"], 78_004);
    assert_eq!(value["trace"]["fences"], 1);
    assert_eq!(value["trace"]["complete"], true);
    let finding = &value["findings"][0];
    assert_eq!(finding["kind"], "missing-flush");
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["file"], "log.c");
    assert_eq!(finding["line"], 14);
    assert_eq!(finding["column"], 13);
    assert_eq!(finding["function"], "append");
    assert_eq!(finding["count"], 12);
    assert!(finding["message"].is_string());
    assert_eq!(
        finding["address"],
        serde_json::json!({ "file": "/mnt/pm/log.pm", "offset": 0, "length": 8 })
    );
    assert_eq!(finding["stack"][1]["function"], "main");
    assert_eq!(finding["stack"][1]["file"], "log.c");
    assert_eq!(finding["stack"][1]["line"], 21);
    assert_eq!(finding["durable_by"]["kind"], "fence");
    assert_eq!(finding["durable_by"]["stack"][0]["line"], 15);
    assert!(finding.get("approximate").is_none());
}

#[test]
fn json_of_a_crash_has_the_keys_of_the_contract() {
    let mut report = report(vec![crash_order()]);
    report.stats = Some(stats());
    let value = json(&report);
    let finding = &value["findings"][0];
    assert_eq!(finding["kind"], "crash-order");
    let crash = &finding["crash"];
    for frame in [&crash["after"], &crash["persisted"][0], &finding["order"][0]["after"]] {
        assert_eq!(
            (&frame["function"], &frame["file"], &frame["line"]),
            (&"append".into(), &"log.c".into(), &14.into())
        );
    }
    for frame in [&crash["missing"][0], &finding["order"][0]["before"]] {
        assert_eq!(
            (&frame["function"], &frame["file"], &frame["line"]),
            (&"append".into(), &"log.c".into(), &11.into())
        );
    }
    assert_eq!(crash["missing"][0]["pm"]["offset"], 64);
    assert_eq!(crash["missing"][0]["stack"][1]["function"], "main");
    let recovery = crash["recovery"].as_object().expect("an object");
    assert_eq!(recovery["status"], 1);
    assert_eq!(recovery["signal"], Value::Null);
    assert_eq!(recovery["timeout"], false);
    assert_eq!(recovery["stderr"], "checking log.pm\nevent 0 has no id\n");
    assert_eq!(crash["states"], 12);
    assert_eq!(
        crash["replay"]["command"],
        "crashproof crash --replay crashes/1-crash-order"
    );
    let stats = &value["stats"];
    assert_eq!(stats["states_total"], 13_345);
    assert_eq!(stats["states_tested"], 12_345);
    assert_eq!(stats["states_pruned"], 1_000);
    assert_eq!(stats["seconds"], 3.2);
}

#[test]
fn json_spells_severities_and_events_as_the_contract() {
    let value = json(&every_kind());
    let findings = value["findings"].as_array().expect("findings");
    let all = |key: &str| {
        findings
            .iter()
            .filter_map(|finding| finding[key].as_str())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(
        all("severity").into_iter().collect::<Vec<_>>(),
        ["error", "note", "warning"]
    );
    let events: std::collections::BTreeSet<_> = findings
        .iter()
        .filter_map(|f| f["durable_by"]["kind"].as_str())
        .collect();
    assert_eq!(
        events.into_iter().collect::<Vec<_>>(),
        ["exit", "fence", "tx-end", "unmap"]
    );
    assert_eq!(
        findings.iter().filter(|finding| finding["approximate"] == true).count(),
        1
    );
}

#[test]
fn json_of_a_killed_program_has_a_numeric_status() {
    let mut report = report(Vec::new());
    report.program = Program {
        asked_to_end: false,
        status: None,
        signal: Some(9),
        command: Vec::new(),
    };
    let value = json(&report);
    assert_eq!(value["program"]["status"], 137);
    assert_eq!(value["program"]["signal"], 9);
}

#[test]
fn json_reads_back() {
    for report in awkward_reports() {
        let back: Report = serde_json::from_value(json(&report)).expect("reads back");
        assert_eq!(back.findings, report.findings);
        assert_eq!(back.trace, report.trace);
    }
}

#[test]
fn json_snapshot() {
    insta::assert_snapshot!(to_json(&report(vec![missing_flush()])).unwrap());
}

#[test]
fn sarif_validates_against_the_schema() {
    let schema: Value =
        serde_json::from_str(include_str!("../data/sarif-schema-2.1.0.json")).expect("the schema is JSON");
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("the schema is a schema");
    assert!(
        !validator.is_valid(&serde_json::json!({ "version": "2.1.0" })),
        "the validator validates"
    );
    for (index, report) in awkward_reports().iter().enumerate() {
        let value = sarif(report);
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "report {index}: {errors:#?}");
    }
}

#[test]
fn sarif_points_to_rules_places_and_flows() {
    let value = sarif(&every_kind());
    let run = &value["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), Kind::ALL.len());
    for result in run["results"].as_array().expect("results") {
        let index = result["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert_eq!(result["level"], rules[index]["defaultConfiguration"]["level"]);
        assert_eq!(
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            "log.c"
        );
    }
    let flow = &run["results"][2]["codeFlows"][0]["threadFlows"][0]["locations"];
    assert_eq!(flow[0]["location"]["physicalLocation"]["region"]["startLine"], 14);
    assert_eq!(flow[1]["location"]["physicalLocation"]["region"]["startLine"], 15);
    assert_eq!(run["invocations"][0]["exitCode"], 0);
}

#[test]
fn sarif_fingerprints_survive_an_edit_elsewhere() {
    let fingerprint = |text: &str, line: u32| {
        let folder = sources();
        std::fs::write(folder.path().join("log.c"), text).expect("written");
        let mut finding = missing_flush();
        finding.line = Some(line);
        let value = sarif_in(&report(vec![finding]), folder.path());
        value["runs"][0]["results"][0]["partialFingerprints"]["crashproof/v1"].clone()
    };
    let moved = format!("/* a new line */\n{LOG_C}");
    assert_eq!(fingerprint(LOG_C, 14), fingerprint(&moved, 15));
    assert_ne!(fingerprint(LOG_C, 14), fingerprint(LOG_C, 11));
}

#[test]
fn sarif_tells_a_crash_in_the_order_of_the_program() {
    let value = sarif(&report(vec![crash_order(), crash_atomicity()]));
    let lines = |result: usize| -> Vec<u64> {
        let flow = &value["runs"][0]["results"][result]["codeFlows"][0]["threadFlows"][0]["locations"];
        let steps = flow.as_array().expect("a flow").iter();
        steps
            .map(|step| {
                step["location"]["physicalLocation"]["region"]["startLine"]
                    .as_u64()
                    .expect("a line")
            })
            .collect()
    };
    assert_eq!(lines(0), [11, 14, 14]);
    assert_eq!(lines(1), [11, 11, 12]);
    let properties = &value["runs"][0]["results"][0]["properties"];
    assert_eq!(properties["order"][0]["before"]["line"], 11);
    assert_eq!(properties["replay"], "crashproof crash --replay crashes/1-crash-order");
}

#[test]
fn sarif_has_the_patch_as_a_fix() {
    let value = sarif(&repaired());
    let results = &value["runs"][0]["results"];
    let change = &results[0]["fixes"][0]["artifactChanges"][0];
    assert_eq!(change["artifactLocation"]["uri"], "log.c");
    let replacement = &change["replacements"][0];
    assert_eq!(
        replacement["deletedRegion"],
        serde_json::json!({ "startLine": 15, "startColumn": 1, "endLine": 15, "endColumn": 1 })
    );
    assert_eq!(replacement["insertedContent"]["text"], "\t_mm_clwb(&log->count);\n");
    assert_eq!(results[1]["fixes"], Value::Null);
}

#[test]
fn sarif_of_several_commands_tells_new_from_known() {
    let (mut before, after) = (report(vec![missing_flush()]), every_kind());
    before.known = vec![0];
    let run = |id, report, compared| Run { id, report, compared };
    let text = to_sarif(
        &[run("check/a", &before, true), run("crash/a", &after, false)],
        sources().path(),
    )
    .unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["runs"][0]["automationDetails"]["id"], "crashproof/check/a/");
    assert_eq!(value["runs"][1]["automationDetails"]["id"], "crashproof/crash/a/");
    assert_eq!(value["runs"][0]["results"][0]["baselineState"], "unchanged");
    assert_eq!(value["runs"][1]["results"][0]["baselineState"], Value::Null);
}

#[test]
fn sarif_shows_the_way_from_the_store_over_the_flush() {
    let mut unfenced = missing_flush();
    unfenced.kind = Kind::MissingFence;
    unfenced.related = vec![Related {
        message: "flushed here".into(),
        stack: stack([frame("persist", "pm.h", 4, 3)]),
    }];
    let value = sarif(&report(vec![unfenced]));
    let flow = &value["runs"][0]["results"][0]["codeFlows"][0]["threadFlows"][0]["locations"];
    let texts: Vec<_> = flow
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["location"]["message"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        [
            "stored here, not fenced",
            "flushed here",
            "had to be durable by this fence"
        ]
    );
}

#[test]
fn sarif_snapshot() {
    let value = sarif_in(&report(vec![missing_flush()]), std::path::Path::new("/src"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap() + "\n");
}

#[test]
fn every_kind_is_documented() {
    let findings = include_str!("../../../../docs/findings.md");
    for kind in Kind::ALL {
        assert!(
            findings.contains(&format!("\n## {kind}\n")),
            "docs/findings.md has no section on {kind}"
        );
    }
}
