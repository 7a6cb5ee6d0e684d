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

/// A locked instruction on the stack faults nowhere and has no breakpoint: only its hook records it.
#[test]
fn locked_instructions_on_the_stack_are_fences() {
    let source = r#"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int file = open("pm", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4096) != 0)
        return 1;
    uint64_t *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *pm = 1;
    asm volatile(".byte 0x66; clflush %0" : "+m"(*pm));
    FENCE;
    return 0;
}
"#;
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("a.c"), source).expect("the source is written");
    for (fence, status) in [
        (r#"asm volatile("lock; addl $0,0(%%rsp)" ::: "memory", "cc")"#, 0),
        (r#"asm volatile("lock orq $0,-8(%%rsp)" ::: "memory", "cc")"#, 0),
        ("(void)0", 1),
    ] {
        let _ = std::fs::remove_file(folder.path().join("pm"));
        let mut compiler = support::crashproof();
        compiler.args(["cc", "-g", "-O1", "-mno-red-zone", "a.c", "-o", "a"]);
        support::run(compiler.arg(format!("-DFENCE={fence}")).current_dir(folder.path()), 0);
        let mut check = support::crashproof();
        support::run(check.args(["check", "--", "./a"]).current_dir(folder.path()), status);
    }
}

#[test]
fn faults_and_system_calls() {
    behaves("faults");
    behaves("syscalls");
}
