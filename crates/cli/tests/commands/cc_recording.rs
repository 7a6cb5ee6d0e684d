//! Programs built by `crashproof cc` that use signals, threads and processes in every way that could collide with the hooks in
//! them: the runtime's own test programs, whose checks are in their source. Recorded, they must do the same as alone, and the trace must
//! be complete: what it replays to is what the PM file holds.

use crate::support;

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
    support::run(compiler.arg("-o").arg(&program).arg("-lm"), 0);
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
    behaves("sent_to_children");
}

#[test]
fn what_belongs_to_a_thread_stays_its_own() {
    behaves("own_state");
}

#[test]
fn threads_and_children() {
    behaves("threads");
    behaves("children");
    behaves("shared_state");
}

fn in_folder<'a>(command: &'a mut std::process::Command, folder: &Path) -> &'a mut std::process::Command {
    let _ = std::fs::remove_file(folder.join("pm"));
    command.current_dir(folder)
}

/// A locked instruction on ordinary memory faults nowhere and has no breakpoint: only the check before it records it.
#[test]
fn locked_instructions_on_ordinary_memory_are_fences() {
    let source = r#"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
static uint64_t *pm, counter;
static int fenced;
static uint64_t *next_line(void) {
    pm += 8;
    *pm = 1;
    asm volatile(".byte 0x66; clflush %0" : "+m"(*pm));
    return pm;
}
#define FENCED_BY(...) do { next_line(); if (fenced) { __VA_ARGS__; } } while (0)
int main(int count, char **words) {
    fenced = count > 1;
    int file = open("pm", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4096) != 0)
        return 1;
    pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    uint64_t expected = 77, one = 1, *elsewhere = &counter;
    asm("" : "+r"(elsewhere));
    FENCED_BY(__atomic_fetch_add(elsewhere, 1, __ATOMIC_RELAXED));
    FENCED_BY(__atomic_exchange_n(&counter, 1, __ATOMIC_ACQUIRE));
    FENCED_BY(__atomic_store_n(elsewhere, 2, __ATOMIC_SEQ_CST));
    FENCED_BY(__atomic_compare_exchange_n(elsewhere, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    FENCED_BY(__atomic_fetch_or(elsewhere, 0, __ATOMIC_RELEASE));
    FENCED_BY(__atomic_fetch_xor((char *)elsewhere + 1, 3, __ATOMIC_RELAXED));
    FENCED_BY(asm volatile("lock; addl $0,0(%%rsp)" ::: "memory", "cc"));
    FENCED_BY(asm volatile("lock orq $0,-8(%%rsp)" ::: "memory", "cc"));
    FENCED_BY(asm volatile("lock; xaddq %0, %1" : "+r"(one), "+m"(*elsewhere) : : "memory", "cc"));
    FENCED_BY(asm volatile("xchgq %0, %1" : "+r"(one), "+m"(*elsewhere) : : "memory"));
    return 0;
}
"#;
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("a.c"), source).expect("the source is written");
    let mut compiler = support::crashproof();
    compiler.args(["cc", "-g", "-O1", "-mno-red-zone", "a.c", "-o", "a"]);
    support::run(in_folder(&mut compiler, folder.path()), 0);
    let check = |arguments: &[&str], status| {
        let mut check = support::crashproof();
        check.args(["check", "--json", "report", "--", "./a"]).args(arguments);
        support::run(in_folder(&mut check, folder.path()), status);
        let report = std::fs::read_to_string(folder.path().join("report")).expect("a report");
        serde_json::from_str::<crashproof_finding::Report>(&report).expect("a report")
    };
    check(&["fenced"], 0);
    let report = check(&[], 1);
    let missing = report
        .findings
        .iter()
        .filter(|f| f.kind == crashproof_finding::Kind::MissingFence);
    assert_eq!(missing.map(|f| f.count).sum::<u64>(), 10);
}

/// What has no hook is recorded by its faults, and at its lines.
#[test]
fn shapes_without_hooks_fault() {
    let driver = r#"
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
void scatter(uint64_t *), compress(uint64_t *), element_wise(uint64_t *, const uint64_t *);
void __llvm_memcpy_element_unordered_atomic_8(uint64_t *to, const uint64_t *from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / 8; i++)
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
}
int main(int count, char **words) {
    int file = open("pm", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4096) != 0)
        return 1;
    uint64_t *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), from[4] = {1, 2, 3, 4}, one = 1;
    scatter(pm);
    compress(pm + 8);
    element_wise(pm + 16, from);
    _mm_maskmoveu_si128(_mm_set1_epi8(7), _mm_set_epi32(-1, 0, -1, 0), (char *)(pm + 24));
    asm volatile("lock; xaddq %0, %1" : "+r"(one), "+m"(pm[32]) : : "memory", "cc");
    asm volatile("lock; btsq $3, %0" : "+m"(pm[40]) : : "memory", "cc");
    asm volatile("xchgq %0, %1" : "+r"(one), "+m"(pm[48]) : : "memory");
    for (int i = 0; i < 56; i++)
        printf("%d ", (int)pm[i]);
    if (count > 1) {
        for (int i = 0; i < 56; i += i == 16 ? 16 : 8) // maskmovdqu goes past the cache, and the next instruction fences it
            _mm_clflush(pm + i);
        _mm_sfence();
    }
    return 0;
}
"#;
    let shapes = r#"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"
declare void @llvm.masked.scatter.v4i64.v4p0(<4 x i64>, <4 x ptr>, i32, <4 x i1>)
declare void @llvm.masked.compressstore.v4i64(<4 x i64>, ptr, <4 x i1>)
declare void @llvm.memcpy.element.unordered.atomic.p0.p0.i64(ptr, ptr, i64, i32)
define void @scatter(ptr %pm) {
  %pointers = getelementptr i64, ptr %pm, <4 x i64> <i64 0, i64 2, i64 4, i64 6>
  call void @llvm.masked.scatter.v4i64.v4p0(<4 x i64> <i64 5, i64 6, i64 7, i64 8>, <4 x ptr> %pointers, i32 8, <4 x i1> <i1 1, i1 0, i1 1, i1 1>)
  ret void
}
define void @compress(ptr %pm) {
  call void @llvm.masked.compressstore.v4i64(<4 x i64> <i64 5, i64 6, i64 7, i64 8>, ptr %pm, <4 x i1> <i1 1, i1 0, i1 1, i1 1>)
  ret void
}
define void @element_wise(ptr %pm, ptr %from) {
  call void @llvm.memcpy.element.unordered.atomic.p0.p0.i64(ptr align 8 %pm, ptr align 8 %from, i64 32, i32 8)
  ret void
}
"#;
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("driver.c"), driver).expect("the source is written");
    std::fs::write(folder.path().join("shapes.ll"), shapes).expect("the source is written");
    let mut compiler = support::crashproof();
    compiler.args(["cc", "-g", "-O1", "-w", "driver.c", "shapes.ll", "-o", "a"]);
    support::run(in_folder(&mut compiler, folder.path()), 0);
    let alone = support::run(in_folder(&mut std::process::Command::new("./a"), folder.path()), 0);
    for (arguments, status) in [(&["flushed"][..], 0), (&[], 1)] {
        let mut check = support::crashproof();
        check.args(["check", "--json", "report", "--", "./a"]).args(arguments);
        let recorded = support::run(in_folder(&mut check, folder.path()), status);
        assert_eq!(support::text(&alone.stdout), support::text(&recorded.stdout));
        let report = std::fs::read_to_string(folder.path().join("report")).expect("a report");
        let report: crashproof_finding::Report = serde_json::from_str(&report).expect("a report");
        assert!(!support::text(&recorded.stderr).contains("incomplete"));
        let functions: std::collections::BTreeSet<&str> = report
            .findings
            .iter()
            .filter_map(|f| f.stack.first()?.function.as_deref())
            .collect();
        if status == 1 {
            let expected = [
                "__llvm_memcpy_element_unordered_atomic_8",
                "compress",
                "main",
                "scatter",
            ];
            assert_eq!(functions.into_iter().collect::<Vec<_>>(), expected);
            let lines: std::collections::BTreeSet<u32> = report.findings.iter().filter_map(|f| f.line).collect();
            assert_eq!(lines.into_iter().collect::<Vec<_>>(), [18, 19, 20, 22, 23, 24]); // the copy function is a helper
        }
    }
}

#[test]
fn faults_and_system_calls() {
    behaves("faults");
    behaves("syscalls");
}
