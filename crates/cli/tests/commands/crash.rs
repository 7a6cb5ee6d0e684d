//! `crashproof crash`, `test` and `init` on a small program: the contract, each option, and what can go wrong.

use crate::support;

use std::path::PathBuf;

use serde_json::Value;
use support::place::{APPEND, APPEND_EARLY, Place, VERIFY, cause, expect, expect_words};
use support::source;

fn line_of(text: &str) -> u64 {
    let source = std::fs::read_to_string(source("crash/pool.c")).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() as u64 + 1
}

#[test]
fn a_right_program_is_clean() {
    let place = Place::new();
    let before = std::fs::read(place.path().join("p")).unwrap();
    for strategy in ["prefix", "representative", "exhaustive", "dpor", "random"] {
        std::fs::write(place.path().join("p"), &before).unwrap();
        let options = [&VERIFY[..], &["--strategy", strategy, "--max-states", "5000"]].concat();
        let report = place.crash(0, &options, &APPEND);
        assert_eq!(report["findings"], serde_json::json!([]), "{strategy}");
        assert_eq!(report["stats"]["strategy"], strategy);
        assert!(report["stats"]["states_tested"].as_u64().unwrap() > 3, "{report:#}");
        assert_eq!(report["program"]["status"], 0);
        assert_eq!(report["trace"]["complete"], true);
    }
    assert!(!place.path().join("crashproof-crashes").exists(), "nothing failed");
    assert_eq!(place.state(), [] as [PathBuf; 0], "the tests are done");
}

#[test]
fn a_page_shows_what_happened_to_the_lines() {
    let place = Place::new();
    let report = place.crash(1, &[&VERIFY[..], &["--html", "out.html"]].concat(), &APPEND_EARLY);
    let count = line_of("pool->count = index + 1;");
    let finding = &report["findings"][0];
    let crash = &finding["crash"];
    let events = crash["timeline"]["events"].as_array().unwrap();
    // Counted, power fails; flush and fence would have come, and then the entry.
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[..6],
        ["store", "crash", "flush", "fence", "store", "store"],
        "{events:#?}"
    );
    assert_eq!(events[0]["frame"]["line"], count);
    assert_eq!(events[0]["event"], crash["persisted"][0]["event"]);
    assert_eq!(events[0]["states"], serde_json::json!([[0, "dirty"]]));
    assert_eq!(events[1]["event"], crash["event"]);
    assert_eq!(events[2]["states"], serde_json::json!([[0, "pending"]]));
    assert_eq!(events[3]["states"], serde_json::json!([[0, "persistent"]]));
    assert_eq!(events[4]["stored"]["pieces"][0][2], "later");
    let nodes = crash["graph"]["nodes"].as_array().unwrap();
    assert!(
        nodes
            .iter()
            .any(|node| node["outcome"] == "persisted" && node["frame"]["line"] == count)
    );
    let progress = report["progress"].as_array().unwrap();
    assert_eq!(progress.last().unwrap()["tested"], report["stats"]["states_tested"]);
    assert_eq!(progress.last().unwrap()["findings"], 1);
    let sum = |key: &str| {
        let traffic = report["traffic"].as_array().unwrap();
        traffic.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>()
    };
    for key in ["stores", "flushes", "fences"] {
        assert_eq!(report["trace"][key], sum(key), "{key}");
    }
    let page = std::fs::read_to_string(place.path().join("out.html")).unwrap();
    assert!(page.contains("\"timeline\":{\"lines\""));
    assert!(page.contains("pool->count = index + 1;"), "its source is there");
}

#[test]
fn a_wrong_program_is_explained_and_replayed() {
    let place = Place::new();
    let report = place.crash(1, &VERIFY, &APPEND_EARLY);
    let findings = report["findings"].as_array().unwrap();
    let order = findings.iter().find(|finding| finding["kind"] == "crash-order");
    let finding = order.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(finding["severity"], "error");
    assert!(finding["file"].as_str().unwrap().ends_with("pool.c"));
    assert_eq!(finding["function"], "write_entry");
    let crash = &finding["crash"];
    assert_eq!(crash["depth"], 1);
    assert!(crash["after"]["line"].is_u64());
    assert_eq!(crash["persisted"][0]["line"], line_of("pool->count = index + 1;"));
    assert_eq!(crash["missing"][0]["function"], "write_entry");
    assert_eq!(crash["recovery"]["status"], 3);
    assert_eq!(crash["recovery"]["signal"], Value::Null);
    assert_eq!(crash["recovery"]["timeout"], false);
    assert!(
        crash["recovery"]["stderr"]
            .as_str()
            .unwrap()
            .contains("counted and not there")
    );
    assert!(crash["states"].as_u64().unwrap() >= 1);
    assert_eq!(
        finding["order"][0]["after"]["line"],
        line_of("pool->count = index + 1;")
    );
    assert_eq!(finding["order"][0]["before"]["function"], "write_entry");
    let stats = &report["stats"];
    for key in ["states_total", "states_tested", "states_pruned"] {
        assert!(stats[key].is_u64(), "{key}: {stats:#}");
    }
    assert!(stats["seconds"].is_f64() && stats["states_failed"].as_u64().unwrap() >= 1);

    let folder = crash["replay"]["directory"].as_str().unwrap();
    assert!(
        crash["replay"]["command"]
            .as_str()
            .unwrap()
            .starts_with("crashproof crash --replay ")
    );
    let replay = place.crashproof(&["crash", "--replay", folder]);
    expect(&replay, 1);
    expect_words(&replay, &["counted and not there", "status 3"]);

    // Mended, it recovers from the very same image.
    place.script("pool", "#!/bin/sh\nexit 0\n");
    expect(&place.crashproof(&["crash", "--replay", folder]), 0);
    let nothing = place.crashproof(&["crash", "--replay", "no/such/folder"]);
    expect(&nothing, 2);
    expect_words(&nothing, &["no/such/folder"]);
}

#[test]
fn every_strategy_finds_it_and_a_trace_gives_the_same() {
    let place = Place::new();
    expect(
        &place.crashproof(&[
            "record",
            "--client-requests",
            "off",
            "-o",
            "t",
            "--",
            "./pool",
            "append-early",
            "p",
            "3",
        ]),
        0,
    );
    let mut causes = Vec::new();
    for strategy in ["prefix", "representative", "exhaustive", "dpor", "random"] {
        let output = place.crashproof(&[
            "crash",
            "--strategy",
            strategy,
            "--max-states",
            "2000",
            "--json",
            "-",
            "--recover",
            "./pool verify p",
            "t",
        ]);
        expect(&output, 1);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let order = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["kind"] == "crash-order");
        causes.push(cause(order.unwrap_or_else(|| panic!("{strategy}: {report:#}"))));
    }
    causes.dedup();
    assert_eq!(causes.len(), 1, "{causes:?}");
}

#[test]
fn what_recovery_cannot_do_without_a_crash_is_no_finding() {
    let place = Place::new();
    // The file is made by the program: there is none at first.
    std::fs::remove_file(place.path().join("p")).unwrap();
    let output = place.crashproof(&["crash", "--recover", "./pool verify p", "--", "./pool", "create", "p"]);
    expect(&output, 2);
    expect_words(&output, &["before", "--setup", "--from", "p is no pool"]);
    // The final image is wrong for it.
    let place = Place::new();
    let output = place.crashproof(&[
        "crash",
        "--recover",
        "./pool redo p",
        "--check",
        "false",
        "--",
        "./pool",
        "append",
        "p",
        "3",
    ]);
    expect(&output, 2);
    expect_words(&output, &["false"]);
    // It never ends.
    let output = place.crashproof(&[
        "crash",
        "--timeout",
        "300ms",
        "--recover",
        "sleep 60",
        "--",
        "./pool",
        "append",
        "p",
        "3",
    ]);
    expect(&output, 2);
    expect_words(&output, &["300ms", "--timeout"]);
    assert_eq!(
        place.state(),
        [] as [PathBuf; 0],
        "nothing was tested: there is nothing to resume"
    );
}

#[test]
fn what_cannot_be_done_is_told_with_the_remedy() {
    let place = Place::new();
    let cases: [(&[&str], &[&str], &[&str]); 10] = [
        (
            &["--recover", "./no-such p"],
            &APPEND,
            &["./no-such", "there is no program"],
        ),
        (&["--recover", "./p"], &APPEND, &["not executable", "chmod"]),
        (&["--recover", ""], &APPEND, &["--recover is empty"]),
        (&["--recover", "./pool 'verify"], &APPEND, &["nothing closes"]),
        (
            &["--recover", "true", "--setup", "echo hello; exit 7"],
            &APPEND,
            &["hello", "exited with status 7"],
        ),
        (
            &["--recover", "true", "--expect-output", "no-file"],
            &APPEND,
            &["no-file"],
        ),
        (
            &["--recover", "true", "--strategy", "dpor", "--no-joint"],
            &APPEND,
            &["--no-joint", "`representative`", "--strategy dpor"],
        ),
        (
            &["--recover", "true"],
            &["./pool", "append", "nothing"],
            &["exited with status 2", "nothing was crashed", "--allow-failure"],
        ),
        (&["--recover", "true"], &["true"], &["stored nothing", "--pm"]),
        (
            &["--recover", "true", "--from", "no_such_function"],
            &APPEND,
            &["no_such_function"],
        ),
    ];
    for (options, program, words) in cases {
        let arguments = [&["crash"], options, &["--"], program].concat();
        let output = place.crashproof(&arguments);
        expect(&output, 2);
        expect_words(&output, words);
    }
    let output = place.crashproof(&["crash", "--recover", "true", "no-such.trace"]);
    expect(&output, 2);
    expect_words(&output, &["no-such.trace"]);
    let output = place.crashproof(&[&["crash", "--resume"], &VERIFY[..], &["--"], &APPEND].concat());
    expect(&output, 2);
    expect_words(&output, &["nothing to resume"]);
}

#[test]
fn an_incomplete_trace_is_not_clean() {
    let place = Place::new();
    expect(
        &place.crashproof(&[&["record", "-o", "t", "--"], &APPEND[..]].concat()),
        0,
    );
    let whole = std::fs::read(place.path().join("t")).unwrap();
    std::fs::write(place.path().join("t"), &whole[..whole.len() - 10]).unwrap();
    let output = place.crashproof(&["crash", "--recover", "./pool verify p", "t"]);
    expect(&output, 2);
    expect_words(&output, &["trace is incomplete"]);
}

#[test]
fn set_up_and_the_window_leave_the_creation_out() {
    let place = Place::new();
    std::fs::remove_file(place.path().join("p")).unwrap();
    let report = place.crash(0, &[&VERIFY[..], &["--setup", "./pool create p"]].concat(), &APPEND);
    let all = report["stats"]["states_total"].as_u64().unwrap();
    let set_up = [
        "--setup",
        "./pool create p",
        "--from",
        "write_entry",
        "--until",
        "count_entry",
    ];
    let report = place.crash(0, &[&VERIFY[..], &set_up].concat(), &APPEND);
    let some = report["stats"]["states_total"].as_u64().unwrap();
    assert!(some > 0 && some < all, "{some} of {all}");
    // Creation and all, in one program: the window begins after it.
    place.write("both.sh", "./pool create p && ./pool append p 3\n");
    std::fs::remove_file(place.path().join("p")).unwrap();
    place.crash(
        0,
        &[&VERIFY[..], &["--from", "write_entry"]].concat(),
        &["sh", "both.sh"],
    );
}

#[test]
fn a_hang_is_a_finding() {
    let place = Place::new();
    let options = [
        "--recover",
        "./pool verify-or-hang p",
        "--timeout",
        "200ms",
        "--strategy",
        "prefix",
    ];
    let report = place.crash(1, &options, &["./pool", "append-early", "p", "1"]);
    assert_eq!(
        report["findings"][0]["crash"]["recovery"]["timeout"], true,
        "{report:#}"
    );
    assert_eq!(report["findings"][0]["crash"]["recovery"]["status"], Value::Null);
}

#[test]
fn a_checker_sees_what_was_acknowledged() {
    let place = Place::new();
    let options = [&VERIFY[..], &["--check", "./pool acknowledged p"]].concat();
    let report = place.crash(1, &options, &["./pool", "append-ack", "p", "3"]);
    let finding = &report["findings"][0];
    assert_eq!(finding["kind"], "crash-durability", "{report:#}");
    assert_eq!(finding["crash"]["recovery"]["command"], "./pool acknowledged p");
    assert_eq!(finding["crash"]["recovery"]["status"], 4);
    assert_eq!(finding["function"], "count_entry");
    // Without the checker nothing is wrong with it.
    let place = Place::new();
    place.crash(0, &VERIFY, &["./pool", "append-ack", "p", "3"]);
}

#[test]
fn expected_output_is_compared() {
    let place = Place::new();
    place.write("right", "verified\n");
    place.write("wrong", "verified");
    let right = [&VERIFY[..], &["--expect-output", "right"]].concat();
    place.crash(0, &right, &APPEND);
    let wrong = [&["crash"], &VERIFY[..], &["--expect-output", "wrong", "--"], &APPEND].concat();
    let output = place.crashproof(&wrong);
    expect(&output, 2);
    expect_words(&output, &["expected"]);
}

#[test]
fn a_shell_command_and_a_process_per_state_give_the_same() {
    let place = Place::new();
    let expected = place.crash(1, &[&VERIFY[..], &["--strategy", "prefix"]].concat(), &APPEND_EARLY);
    for options in [
        &["--recover", "./pool verify p && true"][..],
        &["--recover", "./pool verify p", "--no-server"],
    ] {
        let place = Place::new();
        let report = place.crash(1, &[options, &["--strategy", "prefix"]].concat(), &APPEND_EARLY);
        assert_eq!(
            cause(&report["findings"][0]),
            cause(&expected["findings"][0]),
            "{options:?}"
        );
    }
}

#[test]
fn what_cannot_be_watched_is_put_back_all_the_same() {
    let place = Place::new();
    for (program, status) in [(APPEND, 0), (APPEND_EARLY, 1)] {
        let options = [
            "crash",
            "--jobs",
            "1",
            "--setup",
            "./pool create p",
            "--recover",
            "./pool verify-unseen p",
        ];
        let output = place.crashproof(&[&options[..], &["--"], &program].concat());
        expect(&output, status);
        expect_words(&output, &["in a way that cannot be watched"]);
    }
}

#[test]
fn models_and_limits() {
    let place = Place::new();
    let fresh = std::fs::read(place.path().join("p")).unwrap();
    let total = |options: &[&str]| {
        std::fs::write(place.path().join("p"), &fresh).unwrap();
        let report = place.crash(
            0,
            &[&VERIFY[..], &["--strategy", "exhaustive"], options].concat(),
            &APPEND,
        );
        report["stats"].clone()
    };
    let states = |stats: &Value| stats["states_total"].as_u64().unwrap();
    let plain = total(&[]);
    assert_eq!(plain["cut_short"], false);
    assert!(states(&total(&["--reorder-in-line"])) > states(&plain));
    assert!(states(&total(&["--model", "eadr"])) > 0);
    assert!(states(&total(&["--no-tear"])) <= states(&plain));
    let few = total(&["--max-states", "3"]);
    assert_eq!(few["cut_short"], true);
    assert!(few["states_tested"].as_u64().unwrap() <= 4, "{few:#}");
    total(&[
        "--memory", "256M", "--disk", "16M", "--time", "1h", "--seed", "3", "--pm", "p",
    ]);
    total(&["--keep-trace", "kept", "--locked-rmw"]);
    assert!(place.path().join("kept").exists());
}

#[test]
fn sarif_and_places_to_save() {
    let place = Place::new();
    let report = place.crash(
        1,
        &[&VERIFY[..], &["--sarif", "out.sarif", "--save", "here"]].concat(),
        &APPEND_EARLY,
    );
    let sarif: Value = serde_json::from_slice(&std::fs::read(place.path().join("out.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "crash-order");
    let folder = report["findings"][0]["crash"]["replay"]["directory"].as_str().unwrap();
    assert!(
        place.path().join(folder).starts_with(place.path().join("here")),
        "{folder}"
    );
    assert!(place.path().join(folder).is_dir());
}

#[test]
fn findings_can_be_ignored() {
    let place = Place::new();
    place.write(
        "crashproof.toml",
        "[[ignore]]\nfunction = \"write_entry\"\nreason = \"known\"\n",
    );
    place.crash(0, &VERIFY, &APPEND_EARLY);
    let place = Place::new();
    place.write(
        "other.toml",
        "[[ignore]]\nkind = \"crash-durability\"\nreason = \"none\"\n",
    );
    let report = place.crash(1, &[&VERIFY[..], &["--config", "other.toml"]].concat(), &APPEND_EARLY);
    assert!(
        report["warnings"][0].as_str().unwrap().contains("crash-durability"),
        "{report:#}"
    );
}

#[test]
fn a_crash_of_the_recovery() {
    let pair = ["./pool", "pair", "p", "2"];
    let place = Place::new();
    place.crash(0, &["--recover", "./pool redo-early p"], &pair);
    let place = Place::new();
    let report = place.crash(1, &["--recover", "./pool redo-early p", "--depth", "2"], &pair);
    let finding = &report["findings"][0];
    assert_eq!(finding["crash"]["depth"], 2, "{report:#}");
    assert_eq!(finding["crash"]["recovery"]["status"], 5);
    assert!(
        finding["stack"]
            .as_array()
            .unwrap()
            .iter()
            .any(|frame| frame["function"] == "redo"),
        "{finding:#}"
    );
    assert!(finding["message"].as_str().unwrap().contains("recovery"), "{finding:#}");
    let place = Place::new();
    place.crash(0, &["--recover", "./pool redo p", "--depth", "2"], &pair);

    // A checker judges what the crashed recovery left, whoever runs it.
    for check in ["./pool redo p", "./pool redo p; exit $?"] {
        let place = Place::new();
        let options = [
            "--setup",
            "./pool create p",
            "--depth",
            "2",
            "--check",
            check,
            "--recover",
        ];
        place.crash(0, &[&options[..], &["./pool redo p"]].concat(), &pair);
        let report = place.crash(1, &[&options[..], &["./pool redo-early p"]].concat(), &pair);
        assert_eq!(report["findings"][0]["crash"]["depth"], 2, "{check}: {report:#}");
    }
}

#[test]
fn a_project_is_tested_without_arguments() {
    let place = Place::new();
    let missing = place.crashproof(&["test"]);
    expect(&missing, 2);
    expect_words(&missing, &["crashproof init"]);

    expect(&place.crashproof(&["init"]), 0);
    let none = place.crashproof(&["test"]);
    expect(&none, 2);
    expect_words(&none, &["describes no [[test]]"]);
    let again = place.crashproof(&["init"]);
    expect(&again, 2);
    expect_words(&again, &["--force"]);
    expect(&place.crashproof(&["init", "--force"]), 0);

    place.write(
        "crashproof.toml",
        r#"
        [[test]]
        name = "right"
        program = "./pool append p 2"
        setup = "./pool create p"
        recover = "./pool verify p"
        strategy = "prefix"
        jobs = 1

        [[test]]
        name = "wrong"
        program = ["./pool", "append-early", "p", "2"]
        setup = "./pool create p"
        recover = "./pool verify p"
        strategy = "prefix"
        jobs = 1

        [[test]]
        name = "checked"
        program = "./pool append p 1"
        setup = "./pool create p"
        "#,
    );
    let output = place.crashproof(&["test", "--json", "all.json"]);
    expect(&output, 1);
    expect_words(
        &output,
        &[
            "$ ./pool create p $ crashproof check -- ./pool append p 2",
            "$ crashproof crash --recover './pool verify p' --setup './pool create p' --strategy prefix",
        ],
    );
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("all.json")).unwrap()).unwrap();
    let names: Vec<&Value> = report["tests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|test| &test["name"])
        .collect();
    assert_eq!(names, ["right", "wrong", "checked"]);
    assert_eq!(report["tests"][0]["check"]["findings"], serde_json::json!([]));
    assert_eq!(report["tests"][0]["crash"]["findings"], serde_json::json!([]));
    assert_eq!(report["tests"][1]["crash"]["findings"][0]["kind"], "crash-order");
    assert_eq!(report["tests"][2]["crash"], Value::Null);
    expect(&place.crashproof(&["test", "right", "checked"]), 0);
    let unknown = place.crashproof(&["test", "no-such"]);
    expect(&unknown, 2);
    expect_words(&unknown, &["no-such", "right, wrong, checked"]);

    place.write("crashproof.toml", "[[test]]\nprogram = \"./pool\"\nrecovery = \"x\"\n");
    let wrong = place.crashproof(&["test"]);
    expect(&wrong, 2);
    expect_words(&wrong, &["line 3", "recovery"]);
}

#[test]
fn expectations_are_left_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("order");
    let source = source("../../../corpus/annotation/order.c");
    support::compile("gcc", &["-g", &source], &program);
    let in_folder = |arguments: &[&str]| {
        let mut command = support::crashproof();
        command.current_dir(folder.path()).env("XDG_STATE_HOME", folder.path());
        let output = support::run(command.args(arguments), 0);
        support::text(&output.stderr)
    };
    in_folder(&["record", "-o", "order.trace", "--", "./order", "pool"]);
    let said = in_folder(&["crash", "--jobs", "1", "--recover", "cat pool", "order.trace"]);
    assert!(said.contains("the program said 1 times what it expects"), "{said}");
}
