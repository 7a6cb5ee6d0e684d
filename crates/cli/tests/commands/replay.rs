//! What `crashproof crash` saves of a finding, and what it compares.

use crate::support;

use serde_json::Value;
use support::place::{APPEND_EARLY, Place, expect, expect_words};
use support::{compile, source};

fn directory(report: &Value) -> String {
    let directory = report["findings"][0]["crash"]["replay"]["directory"].as_str();
    directory
        .unwrap_or_else(|| panic!("nothing to replay: {report:#}"))
        .to_owned()
}

/// A file that the program made after the crash is there when it is replayed, and must not be seen.
#[test]
fn what_was_not_there_at_the_crash_is_not_there_in_the_replay() {
    let place = Place::new();
    let program = place.path().join("later");
    compile(
        "gcc",
        &["-g", &source("../../../corpus/crash/files/made-later.c")],
        &program,
    );
    let options = ["--setup", "./later setup q", "--recover", "./later recover q"];
    let report = place.crash(1, &options, &["./later", "run", "q"]);
    assert!(place.path().join("q.data").exists(), "the program made it");
    let replay = place.crashproof(&["crash", "--replay", &directory(&report)]);
    expect(&replay, 1);
    expect_words(&replay, &["promised, and there is no file"]);
}

#[test]
fn limits_hold_in_the_replay_too() {
    let place = Place::new();
    // More than the limit, less than the default.
    let script = "#!/bin/sh\n./pool verify p || exit 3\nhead -c 3000000 /dev/zero > big || echo full >&2\n";
    place.script("verify.sh", script);
    let options = ["--recover", "./verify.sh", "--disk", "1M", "--strategy", "prefix"];
    let report = place.crash(1, &options, &APPEND_EARLY);
    let folder = directory(&report);
    place.script("verify.sh", "#!/bin/sh\nhead -c 3000000 /dev/zero > big || exit 5\n");
    let replay = place.crashproof(&["crash", "--replay", &folder]);
    expect(&replay, 1);
    expect_words(&replay, &["status 5"]);
    expect(&place.crashproof(&["crash", "--replay", &folder, "--disk", "10M"]), 0);
}

#[test]
fn long_expected_output_is_compared_to_its_end() {
    let place = Place::new();
    place.script("long.sh", "#!/bin/sh\n./pool verify p || exit 3\nseq 30000\ncat tail\n");
    let expected: String = (1..=30000).map(|number| format!("{number}\n")).collect();
    assert!(expected.len() > 100_000);
    place.write("expected", &format!("verified\n{expected}end\n"));
    let options = [
        "--recover",
        "./long.sh",
        "--expect-output",
        "expected",
        "--strategy",
        "prefix",
    ];
    place.write("tail", "end\n");
    place.crash(0, &options, &["./pool", "append", "p", "2"]);
    // The last byte, and a byte more, tell.
    for tail in ["enD\n", "end\n\n"] {
        place.write("tail", tail);
        let other = place.crashproof(&[&["crash"], &options[..], &["--", "./pool", "append", "p", "2"]].concat());
        expect(&other, 2);
        expect_words(&other, &["its output is not the expected one"]);
    }
}

#[test]
fn tests_of_a_project_save_in_folders_of_their_own() {
    let place = Place::new();
    let test = |name: &str| {
        format!(
            "[[test]]\n{name}program = \"./pool append-early p 2\"\nsetup = \"./pool create p\"\n\
             recover = \"./pool verify p\"\nstrategy = \"prefix\"\njobs = 1\n"
        )
    };
    let named = test("name = \"early\"\n");
    place.write("crashproof.toml", &(named + &test("name = \"a/b\"\n") + &test("")));
    expect(&place.crashproof(&["test", "--json", "all.json"]), 1);
    let report: Value = serde_json::from_slice(&std::fs::read(place.path().join("all.json")).unwrap()).unwrap();
    for (number, folder) in ["early", "test-2", "test-3"].iter().enumerate() {
        let saved = directory(&report["tests"][number]["crash"]);
        assert!(saved.contains(&format!("crashproof-crashes/{folder}/")), "{saved}");
        expect(&place.crashproof(&["crash", "--replay", &saved]), 1);
    }
}
