//! Each phase on compiled snippets, the paper's listings first.

use crashproof_finding::DurableByKind::{Exit, Fence, Unmap};
use crashproof_finding::{Finding, Kind};
use crashproof_llvm::Context;
use std::cell::OnceCell;

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
    plan(
        &snippet.program,
        &OnceCell::new(),
        findings,
        &Observed::default(),
        &options,
    )
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

/// Scores by the function that is called; of stores 0.
struct Scores(&'static [(&'static str, i64)]);

impl<'m> Aliases<'m> for Scores {
    fn scores(&self, places: &[Value<'m>]) -> Vec<Option<i64>> {
        let score = |place: &Value<'m>| match place.called_function() {
            Some(function) => Some(
                self.0
                    .iter()
                    .find(|(name, _)| *name == function.name())
                    .map_or(0, |(_, score)| *score),
            ),
            None => Some(0),
        };
        places.iter().map(score).collect()
    }

    fn may_be_pm(&self, pointer: Value<'m>) -> bool {
        !pointer.base().is_alloca() && !pointer.base().is_global_variable()
    }

    fn callees(&self, _: Value<'m>) -> Option<Vec<Value<'m>>> {
        None
    }
}

fn hoisted(snippet: &Snippet, findings: &[Finding], scores: &'static [(&'static str, i64)]) -> Plan {
    let options = PlanOptions {
        coalesce: true,
        ..PlanOptions::default()
    };
    let observed = Observed::default();
    let planner = Planner::new(&snippet.program, &observed, &options);
    let mut plan = Plan::default();
    let needs = planner.needs(findings, &mut plan.left);
    planner.phases(needs, &Scores(scores), &mut plan);
    plan
}

const LISTING_5: &str = "void update(char *addr, int idx, char val) {
    addr[idx] = val; //@ store
}
void modify(char *addr) {
    update(addr, 3, 4); //@ update
}
void foo(char *vol_addr, char *pm_addr) {
    for (int i = 0; i < 100; i++)
        modify(vol_addr);
    modify(pm_addr); //@ modify
    puts(\"crash\"); //@ crash
}";

#[test]
fn listing_5_a_persistent_subprogram() {
    let context = Context::create();
    let code = Snippet::c(&context, LISTING_5);
    let stack = "update@store modify@update foo@modify main";
    let finding = code.missing_flush(stack, Exit, "exit foo@crash main");
    let plan = hoisted(&code, &[finding], &[("modify", 1)]);
    assert_eq!(edits(&plan), ["call+fence modify_persist 10"]);
    assert_eq!(plan.fixes[0].safe_by, SafeBy::PersistentSubprogram);
    let scores: Vec<_> = plan.fixes[0]
        .candidates
        .iter()
        .map(|candidate| candidate.score)
        .collect();
    assert_eq!(scores, [Some(0), Some(0), Some(1)]);
    let names: Vec<&str> = plan.clones.iter().map(|clone| clone.name.as_str()).collect();
    assert_eq!(names, ["modify_persist", "update_persist"]);
    assert_eq!(plan.clones[0].calls[0].1, "update_persist");
    assert!(plan.clones[0].flushes.is_empty());
    assert_eq!(plan.clones[1].flushes.len(), 1);
}

#[test]
fn a_tie_is_the_innermosts_and_nothing_goes_beyond_durable_by() {
    let context = Context::create();
    let code = Snippet::c(&context, LISTING_5);
    let stack = "update@store modify@update foo@modify main";
    let finding = code.missing_flush(stack, Exit, "exit foo@crash main");
    assert_eq!(edits(&hoisted(&code, &[finding], &[])), ["flush+fence 2"]);
    // Within `modify` already it had to be durable: the call of `modify` comes too late.
    let early = code.missing_flush(stack, Exit, "exit modify@store foo@modify main");
    let plan = hoisted(&code, std::slice::from_ref(&early), &[("modify", 5), ("update", 1)]);
    assert_eq!(edits(&plan), ["call+fence update_persist 5"]);
    // Without the event nothing is known but the store.
    let unknown = Finding {
        durable_by: None,
        ..early
    };
    assert_eq!(edits(&hoisted(&code, &[unknown], &[("modify", 5)])), ["flush+fence 2"]);
}

#[test]
fn one_subprogram_for_all_that_lies_on_its_stacks() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "struct s { long a, b; };
static void set(struct s *s) {
    s->a = 1; //@ a
    s->b = 2; //@ b
}
static void twice(struct s *s) {
    set(s); //@ set
    set(s + 1); //@ set2
}
void foo(struct s *pm) {
    twice(pm); //@ twice
    SFENCE(); //@ fence
}",
    );
    let stack = |store: &str, call: &str| format!("set@{store} twice@{call} foo@twice main");
    let findings = [("a", "set"), ("b", "set"), ("a", "set2"), ("b", "set2")]
        .map(|(store, call)| code.missing_flush(&stack(store, call), Fence, "foo@fence main"));
    let plan = hoisted(&code, &findings, &[("twice", 1)]);
    assert_eq!(edits(&plan), ["call twice_persist 11"]);
    assert_eq!(plan.fixes[0].findings, [0, 1, 2, 3]);
    // Two fields, one flush.
    let set = plan.clones.iter().find(|clone| clone.original == "set").unwrap();
    assert_eq!(set.flushes.len(), 1);
    assert_eq!(set.flushes[0].len(), 2);
}

#[test]
fn recursion_libraries_and_what_is_unknown() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "struct n { long v; char name[40]; };
static void fill(struct n *n, long i) {
    if (i == 0) return;
    n[i].v = i; //@ v
    strcpy(n[i].name, \"name\");
    fill(n, i - 1); //@ fill
}
static void strange(struct n *n) {
    n->v = 1; //@ w
    strtok(n->name, \",\");
}
void foo(struct n *pm) {
    fill(pm, 3); //@ foo
    strange(pm); //@ strange
}",
    );
    let finding = code.missing_flush("fill@v fill@fill foo@foo main", Exit, "exit");
    let plan = hoisted(&code, &[finding], &[("fill", 1)]);
    // Innermost of equals: the recursive call; its copy calls itself.
    assert_eq!(edits(&plan), ["call+fence fill_persist 6"]);
    assert_eq!(plan.clones.len(), 1);
    assert_eq!(plan.clones[0].flushes.len(), 2);
    assert_eq!(plan.clones[0].calls[0].1, "fill_persist");
    let finding = code.missing_flush("strange@w foo@strange main", Exit, "exit");
    let plan = hoisted(&code, &[finding], &[("strange", 1)]);
    assert_eq!(edits(&plan), ["flush+fence 9"]);
    let reason = plan.fixes[0].candidates[1].reason.as_ref().unwrap();
    assert!(reason.contains("`strtok`"), "{reason}");
}

#[test]
fn what_every_caller_flushes_needs_no_subprogram() {
    let context = Context::create();
    let code = Snippet::c(&context, LISTING_5);
    let hoist = code.missing_flush("update@store modify@update foo@modify main", Fence, "foo@crash main");
    let here = code.missing_flush("update@store other", Fence, "f");
    let plan = hoisted(&code, &[hoist, here], &[("modify", 1)]);
    assert_eq!(edits(&plan), ["flush+fence 2"]);
    assert!(plan.clones.is_empty());
}

#[test]
fn injected_flushes_leave_the_fences_alone() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void foo(long *pm) {
    pm[0] = 1; //@ first
    SFENCE(); //@ fence
    pm[0] = 2; //@ second
    SFENCE(); //@ fence2
    pm[8] = 3; //@ third
}",
    );
    let observed = Observed {
        stores: vec![crate::observed::ObservedStore {
            flushed: false,
            seen: crate::observed::Seen {
                stack: code.stack("foo@first"),
                count: 1,
            },
            always_fenced: true,
            passed_by: Some(code.stack("foo@fence")),
        }],
        ..Observed::default()
    };
    let options = PlanOptions {
        inject_flushes: true,
        ..PlanOptions::default()
    };
    let findings = [
        code.missing_flush("foo@second", Fence, "foo@fence2"),
        code.missing_flush("foo@third", Exit, "exit"),
    ];
    let plan = plan(&code.program, &OnceCell::new(), &findings, &observed, &options);
    assert_eq!(edits(&plan), ["flush 2", "flush 4"]);
    assert_eq!(plan.left.len(), 1);
    assert!(
        plan.left[0].reason.contains("--inject-flushes"),
        "{}",
        plan.left[0].reason
    );
}

#[test]
fn the_plan_in_words() {
    let context = Context::create();
    let code = Snippet::c(&context, LISTING_5);
    let finding = code.missing_flush(
        "update@store modify@update foo@modify main",
        Exit,
        "exit foo@crash main",
    );
    let findings = [finding];
    let plan = hoisted(&code, &findings, &[("modify", 1)]);
    let words = explain::explain(&plan, &findings, &[]);
    for expected in [
        "call `modify_persist`",
        "theorem 4",
        ": 1\n",
        "chosen: ",
        "a copy of `update`",
    ] {
        assert!(words.contains(expected), "{expected} in {words}");
    }
}

#[test]
fn flushes_join_across_blocks_and_with_the_copy_behind_them() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "struct str { uint32_t length, capacity; char data[]; };
struct list { void *head, *tail; long length; };
static void str_init(struct str *s, size_t n, const void *data) {
    s->length = n; //@ length
    s->capacity = n; //@ capacity
    memcpy(s->data, data, n); //@ data
}
static void list_link(struct list *list, void *node, int front) {
    if (front)
        list->head = node; //@ head
    else
        list->tail = node; //@ tail
    list->length++; //@ count
    SFENCE(); //@ fence
}
void use(struct list *l, struct str *s, void *n) { list_link(l, n, 1); str_init(s, 3, n); }",
    );
    let string =
        ["length", "capacity", "data"].map(|line| code.missing_flush(&format!("str_init@{line}"), Exit, "exit"));
    assert_eq!(edits(&intra(&code, &string)), ["flush+fence 4 5 6"]);
    let list = ["head", "tail", "count"]
        .map(|line| code.missing_flush(&format!("list_link@{line}"), Fence, "list_link@fence"));
    assert_eq!(edits(&intra(&code, &list)), ["flush 10 12 13"]);
    // Only one way leads from the first to the second.
    assert_eq!(edits(&intra(&code, &list[..2])), ["flush 10", "flush 12"]);
}
