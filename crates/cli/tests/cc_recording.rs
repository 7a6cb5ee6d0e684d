//! Programs built by `crashproof cc` that use signals, threads and processes in every way that could collide with the hooks in
//! them: the runtime's own test programs, whose checks are in their source. Recorded, they must do the same as alone, and the trace must
//! be complete: what it replays to is what the PM file holds.

mod support;

use std::path::{Path, PathBuf};

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/tests/programs")
}

fn behaves(name: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join(name);
    let source = programs().join(name).with_extension("c");
    let mut compiler = support::crashproof();
    compiler.args(["cc", "-g", "-O1", "-w", "-pthread"]).arg(&source);
    support::run(compiler.arg("-o").arg(&program), 0);
    support::compile(
        "cc",
        &["-static", &programs().join("static_child.c").display().to_string()],
        &folder.path().join("static_child"),
    );
    let environment = |command: &mut std::process::Command| {
        command
            .current_dir(folder.path())
            .env("PM_FILE", folder.path().join("pm"));
    };
    let mut alone = std::process::Command::new(&program);
    environment(&mut alone);
    let alone = support::run(&mut alone, 0);
    std::fs::remove_file(folder.path().join("pm")).ok();

    let mut recorded = support::crashproof();
    environment(&mut recorded);
    let recorded = support::run(recorded.args(["record", "-o", "trace", "--"]).arg(&program), 0);
    assert_eq!(support::text(&alone.stdout), support::text(&recorded.stdout), "{name}");
    let said = support::text(&recorded.stderr);
    assert!(!said.contains("incomplete"), "{name}: {said}");
}

#[test]
fn a_storm_of_signals_and_threads() {
    behaves("storm");
}

#[test]
fn handlers_interrupt_and_are_put_off() {
    behaves("interrupted");
    behaves("handlers");
    behaves("put_off");
    behaves("sent");
}

#[test]
fn threads_and_children() {
    behaves("threads");
    behaves("children");
    behaves("shared_state");
}

#[test]
fn faults_and_system_calls() {
    behaves("faults");
    behaves("syscalls");
}
