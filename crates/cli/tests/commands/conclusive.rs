//! Green only where something was tested: a program that failed, that stored nothing, or whose recovery looks at nothing has exit status 2
//! with the reason, in every format, and the option that says that it is meant to be so.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::place::{APPEND, Place, VERIFY, expect, expect_words};
use crate::support::{SmallDisk, compile, crashproof, run, source, text};

/// With `silent`, a right program that ends as it is told; with `endings`, one with a finding.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in [("silent", "conclusive/silent.c"), ("endings", "bad_input/endings.c")] {
        compile(
            "gcc",
            &["-g", "-O1", "-Wall", &source(program)],
            &folder.path().join(name),
        );
    }
    folder
}

fn in_folder(folder: &TempDir, arguments: &[&str], status: i32) -> String {
    let mut command = crashproof();
    command
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .args(arguments);
    let output = run(&mut command, status);
    text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_failed_program_is_not_clean() {
    let folder = folder();
    for (how, word) in [
        ("exit", "exited with status 7"),
        ("kill", "was ended by signal 9 (SIGKILL)"),
        ("segfault", "was ended by signal 11 (SIGSEGV)"),
        ("terminate", "was ended by signal 15 (SIGTERM)"),
    ] {
        let said = in_folder(&folder, &["check", "--", "./silent", "pool", how], 2);
        assert!(said.contains(word) && said.contains("--allow-failure"), "{said}");
        assert!(
            said.contains("no findings, but not clean: the program failed"),
            "{said}"
        );
        in_folder(&folder, &["check", "--allow-failure", "--", "./silent", "pool", how], 0);
    }
    in_folder(&folder, &["check", "--", "./silent", "pool", "well"], 0);
    // Findings count more.
    let said = in_folder(&folder, &["check", "--", "./endings", "pool", "exit"], 1);
    assert!(
        said.contains("missing-flush") && said.contains("--allow-failure"),
        "{said}"
    );
    // What a script's children do is its own affair.
    let script = "./silent pool kill; ./silent pool exit; exit 0";
    in_folder(&folder, &["check", "--", "sh", "-c", script], 0);
    in_folder(&folder, &["check", "--", "sh", "-c", "./silent pool well; exit 3"], 2);
}

#[test]
fn a_trace_of_a_failed_program_is_not_clean_either() {
    let folder = folder();
    let record = ["record", "-o", "t", "--", "./silent", "pool", "exit"];
    in_folder(&folder, &record, 7);
    in_folder(&folder, &["check", "t"], 2);
    in_folder(&folder, &["check", "--allow-failure", "t"], 0);
    let crash = ["crash", "--jobs", "1", "--json", "c.json", "--recover", "cat pool", "t"];
    let said = in_folder(&folder, &crash, 2);
    assert!(
        said.contains("exited with status 7") && said.contains("nothing was crashed"),
        "{said}"
    );
    let report = json(&folder.path().join("c.json"));
    assert_eq!(report["inconclusive"][0]["reason"], "program-failed", "{report:#}");
    in_folder(&folder, &[&crash[..1], &["--allow-failure"], &crash[1..]].concat(), 0);
}

#[test]
fn every_format_says_it() {
    let folder = folder();
    let formats = [
        "--json", "r.json", "--sarif", "r.sarif", "--junit", "r.xml", "--html", "r.html",
    ];
    let nothing: [&str; 5] = ["--pm", "other", "sh", "-c", "exit 7"];
    for command in [&["check"][..], &["crash", "--recover", "cat pool"]] {
        let arguments = [command, &formats, &nothing[..2], &["--"], &nothing[2..]].concat();
        let said = in_folder(&folder, &arguments, 2);
        assert!(
            said.contains("stored nothing") && said.contains("--allow-no-stores"),
            "{said}"
        );
        let report = json(&folder.path().join("r.json"));
        let reasons: Vec<_> = report["inconclusive"].as_array().unwrap().iter().collect();
        assert_eq!(reasons.len(), 2, "{report:#}");
        assert_eq!(
            (&reasons[0]["reason"], &reasons[1]["reason"]),
            (&"program-failed".into(), &"no-stores".into())
        );
        let sarif = json(&folder.path().join("r.sarif"));
        let invocation = &sarif["runs"][0]["invocations"][0];
        assert_eq!(invocation["executionSuccessful"], false);
        assert_eq!(invocation["toolExecutionNotifications"][0]["level"], "error");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("r.xml").contains("errors=\"2\"") && read("r.xml").contains("type=\"no-stores\""));
        assert!(read("r.html").contains("\"reason\":\"no-stores\""));
        let gnu = [command, &["--format", "gnu"], &nothing[..2], &["--"], &nothing[2..]].concat();
        let said = in_folder(&folder, &gnu, 2);
        assert!(
            said.contains("crashproof: no-stores: ") && said.contains("crashproof: program-failed: "),
            "{said}"
        );
    }
    let allowed = ["--allow-failure", "--allow-no-stores"];
    for command in [&["check"][..], &["crash", "--recover", "cat pool"]] {
        let arguments = [command, &allowed, &nothing[..2], &["--"], &nothing[2..]].concat();
        in_folder(&folder, &arguments, 0);
    }
}

#[test]
fn tests_of_a_project_have_the_keys() {
    let folder = folder();
    let write = |keys: &str| {
        let test = format!("[[test]]\nname = \"dead\"\nprogram = [\"sh\", \"-c\", \"exit 7\"]\n{keys}");
        std::fs::write(folder.path().join("crashproof.toml"), test).unwrap();
    };
    write("");
    let said = in_folder(&folder, &["test"], 2);
    assert!(said.contains("check program failed dead"), "{said}");
    write("allow-failure = true\n");
    let said = in_folder(&folder, &["test"], 2);
    assert!(said.contains("check nothing stored dead"), "{said}");
    write("allow-failure = true\nallow-no-stores = true\n");
    in_folder(&folder, &["test"], 0);
}

#[test]
fn what_the_user_ends_has_not_failed() {
    let folder = folder();
    for (command, signal, status) in [("check", "TERM", 0), ("check", "HUP", 0), ("check", "INT", 0)] {
        let mut child = crashproof()
            .current_dir(folder.path())
            .args([command, "--json", "r.json", "--", "./silent", "pool", "forever"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0u8; 8];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(&line, b"waiting\n");
        run(
            Command::new("kill")
                .arg(format!("-{signal}"))
                .arg(child.id().to_string()),
            0,
        );
        let output = child.wait_with_output().unwrap();
        expect(&output, status);
        assert_eq!(json(&folder.path().join("r.json"))["program"]["asked_to_end"], true);
    }
}

#[test]
fn a_recovery_that_looks_at_nothing_says_nothing() {
    let place = Place::new();
    for recover in ["true", "./pool verify other", "sh -c 'exit 0'", "test -e p && exit 0"] {
        Command::new("cp")
            .args(["p", "other"])
            .current_dir(place.path())
            .status()
            .unwrap();
        let report = place.crash(2, &["--recover", recover], &APPEND);
        let doubts = report["inconclusive"].as_array().unwrap();
        assert_eq!(doubts.len(), 1, "{recover}: {report:#}");
        assert_eq!(doubts[0]["reason"], "recovery-looked-at-nothing");
        assert!(doubts[0]["message"].as_str().unwrap().contains("/p"), "{report:#}");
    }
    // The checker looks, or a child of the shell does.
    place.crash(0, &["--recover", "true", "--check", "./pool verify p"], &APPEND);
    place.crash(0, &["--recover", "cat p > copy && true"], &APPEND);
    place.crash(0, &["--no-server", VERIFY[0], VERIFY[1]], &APPEND);
    // A budget that ends it, and going on from there.
    let budget = ["--recover", "true", "--strategy", "exhaustive", "--max-states", "1"];
    let report = place.crash(2, &budget, &APPEND);
    assert_eq!(report["stats"]["cut_short"], true);
    let resumed = ["--recover", "true", "--strategy", "exhaustive", "--resume"];
    place.crash(2, &resumed, &APPEND);
    let output = place.crashproof(&[&["crash", "--recover", "true", "--"], &APPEND[..]].concat());
    expect(&output, 2);
    expect_words(&output, &["\"true\" did not open", "in any run"]);
}

/// Written under a limit that is too small, each file stays what it was.
#[test]
fn a_full_disk_leaves_good_files_alone() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    in_folder(
        &folder,
        &["record", "-o", "buggy", "--", "./endings", "pool", "much"],
        7,
    );
    let log = (0..4000)
        .map(|i| format!("_ASSIGN 0x{:x} 8 a.c 1\n", 4096 + i * 8))
        .collect::<String>();
    std::fs::write(at("log"), log).unwrap();
    let outputs: [&[&str]; 6] = [
        &["check", "--json", "out", "buggy"],
        &["check", "--sarif", "out", "buggy"],
        &["ops", "generate", "--count", "5000", "-o", "out"],
        &["export", "--format", "pmemcheck", "buggy", "-o", "out"],
        &["export", "--format", "perfetto", "buggy", "-o", "out"],
        &["import", "pmtest", "log", "-o", "out"],
    ];
    for arguments in outputs {
        std::fs::write(at("out"), "what was there").unwrap();
        let before = folder.path().read_dir().unwrap().count();
        let program = crashproof();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$0\" \"$@\""])
            .arg(program.get_program())
            .args(arguments)
            .current_dir(folder.path());
        for (name, value) in program.get_envs() {
            shell.envs(value.map(|value| (name, value)));
        }
        let output = shell.output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains("File too large"), "{arguments:?}: {said}");
        assert_eq!(
            std::fs::read_to_string(at("out")).unwrap(),
            "what was there",
            "{arguments:?}: {said}"
        );
        assert_eq!(folder.path().read_dir().unwrap().count(), before, "{arguments:?}");
    }
}

#[test]
fn a_recording_that_a_full_disk_ends_leaves_the_trace_before_it_alone() {
    let folder = folder();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = SmallDisk::mount(disk.clone(), "256k");
    std::fs::write(disk.join("trace"), "what was there").unwrap();
    let said = in_folder(
        &folder,
        &["record", "-o", "disk/trace", "--", "./endings", "pool", "much"],
        7,
    );
    let kept = std::fs::read_to_string(disk.join("trace")).unwrap_or_default();
    let partial = in_folder(&folder, &["dump", "--kind", "fence", "disk/trace.partial"], 0);
    drop(mounted);
    assert_eq!(kept, "what was there", "{said}");
    assert!(
        said.contains("is as it was before; what was recorded is in disk/trace.partial"),
        "{said}"
    );
    assert!(partial.contains("the trace is incomplete"), "{partial}");
}
