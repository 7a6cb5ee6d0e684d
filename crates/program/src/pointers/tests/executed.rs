//! The whole analysis against what programs do: random C programs that move pointers about in all ways are compiled, analysed and run.
//!
//! A program notes the pointers that it computes. Two that were the same address in a run must be such as the analysis says may alias: nothing is freed, so an
//! address is one object's. And the constraints of these programs, as they come from clang's bitcode, are solved naively too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;
use std::{fs, str};

use crashproof_llvm::{Context, Module, Value};
use proptest::prelude::*;

use super::programs::{PRELUDE, module, stores};
use super::random::{stepped, within};
use crate::pointers::constraints::{Constraints, Variable};
use crate::pointers::memory::Location;
use crate::pointers::naive;
use crate::pointers::solver::Solver;
use crate::pointers::{PointsTo, generate};

/// `NOTE` stores the pointer to a variable of its own, by which the value is found in the bitcode, and tells the run's address.
const BEGIN: &str = "
#include <stdio.h>
#include <stddef.h>
struct node { struct node *a; struct node *b[3]; void *v; struct node *(*f)(struct node *); };
typedef struct node *function(struct node *);
static void note(int number, const volatile void *p) { if (p) printf(\"%d %p\\n\", number, (void *)p); }
#define NOTE(number, p) do { const volatile void *noted_##number = (const volatile void *)(p); note(number, noted_##number); } while (0)
static volatile int zero;
static int opaque(int i) { return i + zero; }
static struct node n0, n1, n2, array[3], *g0, *g1;
static struct node initial = { &n0, { 0, &n1, 0 }, &n2, 0 };
static void *raw(size_t size) { void *p = calloc(1, size + 8); if (!p) abort(); return p; }
static struct node *fresh(void) { return raw(sizeof(struct node)); }
static struct node *linked(struct node *to) { struct node *p = raw(sizeof *p); p->a = to; return p; }
static struct node *several(int count) { struct node *p = calloc(count, sizeof *p); if (!p) abort(); return p; }
static struct node *same(struct node *p) { return p; }
static struct node *next(struct node *p) { return p ? p->a : 0; }
static struct node *wrapped(struct node *p) { struct node *q = linked(p); q->b[1] = p; g1 = q; return q; }
static function *table[] = { same, next, wrapped };
static struct node *any(int count, ...) {
    va_list list; struct node *p = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++) { struct node *q = va_arg(list, struct node *); if (q) p = q; }
    va_end(list);
    return p;
}
static struct node by_value(struct node n) { n.b[2] = n.a; return n; }
static void set(struct node **at, struct node *p) { *at = p; }
int main(void) {
    struct node local = { 0 }, *p[4] = { 0 }, *x = 0, *y = 0, *z = 0, **s = 0;
    function *f = same;
    uintptr_t u = 0;
    g0 = 0;
";

#[derive(Clone, Debug)]
struct Statement {
    kind: usize,
    names: [usize; 3],
    index: usize,
}

fn statement() -> impl Strategy<Value = Statement> {
    (
        0..TEMPLATES.len(),
        [0..POINTERS.len(), 0..POINTERS.len(), 0..POINTERS.len()],
        0usize..3,
    )
        .prop_map(|(kind, names, index)| Statement { kind, names, index })
}

/// Variables that hold pointers to nodes.
const POINTERS: &[&str] = &["x", "y", "z", "g0", "p[1]", "p[opaque(2)]"];

/// `P`, `Q` and `R` are such variables, `I` is an index below three; what is noted comes after the bar.
const TEMPLATES: &[&str] = &[
    "P = &nI;|P",
    "P = &local;|P",
    "P = &array[I];|P",
    "P = &array[opaque(I)];|P",
    "P = fresh();|P",
    "P = fresh();|P",
    "P = linked(Q);|P",
    "P = several(3) + opaque(I);|P",
    "P = Q;|P",
    "if (Q) P = Q->a;|P",
    "if (Q) P = Q->b[I];|P",
    "if (Q) P = Q->b[opaque(I)];|P",
    "if (Q) Q->a = P;|Q",
    "if (Q) Q->b[I] = P;|Q",
    "if (Q) Q->b[opaque(I)] = P;|Q",
    "if (Q) Q->v = P;|Q",
    "if (Q) P = Q->v;|P",
    "if (Q) s = &Q->a;|s",
    "if (Q) s = &Q->b[I];|s",
    "if (Q) s = Q->b + opaque(I);|s",
    "s = &P;|s",
    "if (s) *s = P;|P",
    "if (s) P = *s;|P",
    "if (s) set(s, Q);|Q",
    "if (P && Q) *P = *Q;|P->a",
    "if (P && Q) memcpy(P, Q, sizeof *P);|P->v",
    "if (P && Q && P != Q) memcpy(&P->b, &Q->b, sizeof P->b);|P->b[I]",
    "if (P && Q) for (size_t i = 0; i < sizeof *P; i++) ((char *)P)[opaque(i)] = ((char *)Q)[i];|P->b[1]",
    "f = table[opaque(I)];|f",
    "if (Q) Q->f = f;|f",
    "if (Q && Q->f) P = Q->f(R);|P",
    "P = f(Q);|P",
    "P = wrapped(Q);|P",
    "P = any(2, Q, R);|P",
    "u = (uintptr_t)P; P = (struct node *)u;|P",
    "if (Q) { struct node **at = &Q->b[I]; P = (struct node *)((char *)at - offsetof(struct node, b) - I * sizeof *at); }|P",
    "if (Q) { struct node copy = by_value(*Q); P = copy.b[2]; }|P",
    "P = initial.b[1];|P",
    "if (Q) P = same(next(Q));|P",
    "{ union { struct node *node; long number; } both; both.node = Q; long n = both.number; both.number = n; P = both.node; }|P",
    "for (struct node *walk = array; walk < array + 3; walk++) { walk->a = P; Q = walk; }|Q",
    "P = opaque(I) ? Q : R;|P",
];

/// The program, and how many notes it has.
fn source(statements: &[Statement]) -> String {
    let mut text = BEGIN.to_owned();
    let known = [
        "&n0",
        "&n1",
        "&n2",
        "&local",
        "array",
        "array + 1",
        "same",
        "next",
        "wrapped",
        "g1",
    ];
    let mut number = 0;
    for pointer in known {
        _ = writeln!(text, "    NOTE({number}, {pointer});");
        number += 1;
    }
    text += "    for (int round = 0; round < 3; round++) {\n";
    for statement in statements {
        let template = TEMPLATES[statement.kind];
        let mut code = String::new();
        for character in template.chars() {
            match character {
                'P' => code += POINTERS[statement.names[0]],
                'Q' => code += POINTERS[statement.names[1]],
                'R' => code += POINTERS[statement.names[2]],
                'I' => _ = write!(code, "{}", statement.index),
                // Names in capitals are none of these.
                other => code.push(other),
            }
        }
        let (code, noted) = code.split_once('|').unwrap_or((&code, "x"));
        // A field of what may be null is noted only where it is not.
        let guard = noted
            .split_once("->")
            .map_or(String::new(), |(pointer, _)| format!("if ({pointer}) "));
        _ = writeln!(text, "        {code} {guard}NOTE({number}, {noted});");
        number += 1;
    }
    text + "    }\n}\n"
}

/// The values that are noted, by their numbers.
fn noted<'m>(module: &'m Module) -> BTreeMap<u32, Value<'m>> {
    let number = |variable: Value| variable.name().strip_prefix("noted_")?.parse().ok();
    stores(module)
        .filter_map(|(value, variable)| Some((number(variable)?, value)))
        .collect()
}

/// The notes of a run that had each address.
fn run(source: &str) -> BTreeMap<String, BTreeSet<u32>> {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(&file, format!("{PRELUDE}{source}")).unwrap();
    let mut clang = Command::new("clang-19");
    let status = clang
        .args(["-O0", "-w", "-o"])
        .args([&program, &file])
        .status()
        .unwrap();
    assert!(status.success(), "clang-19 failed");
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}\n{source}", output.status);
    let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for line in str::from_utf8(&output.stdout).unwrap().lines() {
        let (number, address) = line.split_once(' ').unwrap();
        found
            .entry(address.to_owned())
            .or_default()
            .insert(number.parse().unwrap());
    }
    found
}

fn same_as_naive(problem: &Constraints) {
    let (solution, shifts) = Solver::solve_and_tell(problem, usize::MAX);
    let stepped = stepped(problem, shifts);
    let naive = naive::solve(&stepped);
    for variable in (0..problem.variables).map(Variable) {
        let mut ours: Vec<Location> = solution.points_to(variable).collect();
        let theirs: Vec<Location> = naive.set(variable).into_iter().collect();
        ours.sort();
        // What a shift added before its cycle was found stays.
        let is_same = if stepped == *problem {
            ours == theirs
        } else {
            within(&theirs, &ours)
        };
        assert!(is_same, "{variable:?}: {ours:?}, naively {theirs:?}");
    }
}

proptest! {
    #![proptest_config(super::cases(12))]

    #[test]
    fn what_happens_was_foreseen(statements in prop::collection::vec(statement(), 10..60)) {
        let source = source(&statements);
        let context = Context::create();
        let module = module(&source, "c", &context);
        same_as_naive(&generate::constraints(&module).constraints);
        let points_to = PointsTo::of(&module);
        let values = noted(&module);
        let mut known = BTreeSet::new();
        for (address, notes) in run(&source) {
            for (index, one) in notes.iter().enumerate() {
                for other in notes.iter().skip(index + 1).filter(|other| known.insert((*one, **other))) {
                    let [a, b] = [one, other].map(|number| values[number]);
                    let [ours, theirs] = [a, b].map(|value| points_to.locations(value));
                    prop_assert!(
                        points_to.may_alias(a, b),
                        "notes {one} and {other} were both {address}\n{ours:?}\n{theirs:?}\n{source}"
                    );
                }
            }
        }
    }
}
