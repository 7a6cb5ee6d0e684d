//! Each phase on compiled snippets, the paper's listings first.

use crashproof_report::DurableByKind::{Exit, Fence, Unmap};
use crashproof_report::{Finding, Kind};
use inkwell::context::Context;

use super::*;
use crate::testing::Snippet;

/// The plan's edits, one word and line each.
fn edits(plan: &Plan) -> Vec<String> {
    let line = |place: &Place| place.position.as_ref().map_or(0, |position| position.line - OFFSET);
    let fenced = |fence: &bool| if *fence { "+fence" } else { "" };
    plan.fixes
        .iter()
        .map(|fix| match &fix.edit {
            Edit::Flush { stores, fence } => {
                let lines: Vec<String> = stores.iter().map(|store| line(store).to_string()).collect();
                format!("flush{} {}", fenced(fence), lines.join(" "))
            }
            Edit::Fence { after } => format!("fence {}", line(after)),
            Edit::Subprogram { call, clone, fence } => format!("call{} {clone} {}", fenced(fence), line(call)),
            Edit::RemoveFlush { flush } => format!("remove-flush {}", line(flush)),
            Edit::RemoveFence { fence } => format!("remove-fence {}", line(fence)),
        })
        .collect()
}

/// Lines of the prelude.
const OFFSET: u32 = 7;

fn intra(snippet: &Snippet, findings: &[Finding]) -> Plan {
    let options = PlanOptions {
        intra_only: true,
        coalesce: true,
        ..PlanOptions::default()
    };
    plan(&snippet.program, findings, &Observed::default(), &options)
}

#[test]
fn listing_3_a_fence_is_missing() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void foo(char *pm_addr) {
    pm_addr[0] = 1; //@ store
    CLWB(pm_addr); //@ flush
    puts(\"crash\"); //@ crash
}",
    );
    let finding = code.missing_fence("foo@store", "foo@flush", Exit, "exit foo@crash");
    let plan = intra(&code, &[finding]);
    assert_eq!(edits(&plan), ["fence 3"]);
    assert_eq!(plan.fixes[0].safe_by, SafeBy::FenceInsertion);
}

#[test]
fn listing_4_a_flush_is_missing() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void foo(char *pm_addr) {
    pm_addr[0] = 1; //@ store
    SFENCE(); //@ fence
    puts(\"crash\");
}",
    );
    let finding = code.missing_flush("foo@store", Fence, "foo@fence");
    let plan = intra(&code, &[finding]);
    assert_eq!(edits(&plan), ["flush 2"]);
    assert_eq!(plan.fixes[0].safe_by, SafeBy::FlushInsertion);
}

#[test]
fn listing_1_flush_and_fence_are_missing() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void foo(char *pm_addr) {
    pm_addr[0] = 1; //@ store
}",
    );
    let plan = intra(&code, &[code.missing_flush("foo@store", Exit, "exit")]);
    assert_eq!(edits(&plan), ["flush+fence 2"]);
    assert_eq!(plan.fixes[0].safe_by, SafeBy::FlushAndFenceInsertion);
}

#[test]
fn a_fence_on_one_path_only_does_not_serve() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void foo(char *pm, int c) {
    pm[0] = 1; //@ store
    if (c)
        SFENCE(); //@ fence
}
void both(char *pm, int c) {
    pm[0] = 1; //@ store2
    if (c)
        SFENCE(); //@ fence2
    else
        SFENCE();
}",
    );
    let plan = intra(&code, &[code.missing_flush("foo@store", Fence, "foo@fence")]);
    assert_eq!(edits(&plan), ["flush+fence 2"]);
    let plan = intra(&code, &[code.missing_flush("both@store2", Fence, "both@fence2")]);
    assert_eq!(edits(&plan), ["flush 7"]);
}

#[test]
fn a_fence_in_a_callee_or_further_out_serves() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "static void drain(void) { SFENCE(); } //@ fence
static void set(char *pm) { *pm = 1; } //@ store
void foo(char *pm) {
    set(pm); //@ call
    drain(); //@ drain
}",
    );
    let finding = code.missing_flush("set@store foo@call main", Fence, "drain@fence foo@drain main");
    assert_eq!(edits(&intra(&code, &[finding])), ["flush 2"]);
    // It comes too late if the memory is unmapped before.
    let finding = code.missing_flush("set@store foo@call main", Unmap, "munmap foo@call main");
    assert_eq!(edits(&intra(&code, &[finding])), ["flush+fence 2"]);
}

#[test]
fn a_fence_goes_where_store_and_flush_meet() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "static void flush(char *at, long n) {
    for (long i = 0; i < n; i += 64)
        CLWB(at + i); //@ flush
}
void foo(char *pm) {
    pm[0] = 1; //@ store
    flush(pm, 1); //@ call
    puts(\"done\");
}",
    );
    let finding = code.missing_fence("foo@store main", "flush@flush foo@call main", Exit, "exit main");
    assert_eq!(edits(&intra(&code, &[finding])), ["fence 7"]);
}

#[test]
fn one_flush_for_an_object_and_one_fence_for_a_block() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "struct s { long a, b, c; char far[400]; };
void foo(struct s *p, long *q) {
    p->a = 1; //@ a
    p->b = 2; //@ b
    p->far[399] = 3; //@ far
    *q = 4; //@ q
    puts(\"seen\");
    p->c = 5; //@ c
}",
    );
    let findings: Vec<Finding> = ["a", "b", "far", "q", "c"]
        .iter()
        .map(|line| code.missing_flush(&format!("foo@{line}"), Exit, "exit"))
        .collect();
    let plan = intra(&code, &findings);
    assert_eq!(edits(&plan), ["flush 3 4", "flush 5", "flush+fence 6", "flush+fence 8"]);
    assert_eq!(plan.fixes[2].findings, [0, 1, 2, 3]);
}

#[test]
fn what_changes_the_pointer_keeps_flushes_apart() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "struct s { long a, b; };
void foo(struct s *p) {
    p->a = 1; //@ a
    p++;
    p->b = 2; //@ b
}",
    );
    let findings = ["a", "b"].map(|line| code.missing_flush(&format!("foo@{line}"), Exit, "exit"));
    assert_eq!(edits(&intra(&code, &findings)), ["flush 3", "flush+fence 5"]);
}

#[test]
fn what_cannot_be_located_is_left_with_the_reason() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void foo(char *pm) {
    strtok(pm, \",\"); //@ call
}",
    );
    let elsewhere = code.finding(Kind::MissingFlush, "f g", None);
    let unknown = code.finding(Kind::MissingFlush, "strtok foo@call", None);
    let plan = intra(&code, &[elsewhere, unknown]);
    assert!(plan.fixes.is_empty());
    assert!(plan.left[0].reason.contains("`f`"), "{}", plan.left[0].reason);
    assert!(plan.left[1].reason.contains("`strtok`"), "{}", plan.left[1].reason);
}
