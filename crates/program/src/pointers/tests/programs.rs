//! Facts about small C programs, compiled by clang.
//!
//! A program says what must hold by `alias(p, q)` and `apart(p, q)`.

use std::fs;
use std::process::Command;

use crashproof_llvm::{Context, Module, Opcode, Value};

use crate::pointers::{Callees, PointsTo};

pub(super) fn module<'context>(source: &str, extension: &str, context: &'context Context) -> Module<'context> {
    let folder = tempfile::tempdir().unwrap();
    let (file, bitcode) = (
        folder.path().join(format!("program.{extension}")),
        folder.path().join("program.bc"),
    );
    fs::write(&file, format!("{PRELUDE}{source}")).unwrap();
    let mut clang = Command::new("clang-19");
    clang
        .args([
            "-O0",
            "-Xclang",
            "-disable-O0-optnone",
            "-fno-discard-value-names",
            "-w",
            "-c",
            "-emit-llvm",
        ])
        .arg(&file)
        .arg("-o")
        .arg(&bitcode);
    assert!(clang.status().unwrap().success(), "clang-19 failed");
    context.read_bitcode(&bitcode).unwrap()
}

/// Both pointers are stored to variables that are known by their names.
pub(super) const PRELUDE: &str = "
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <stdarg.h>
#define ask(kind, p, q) do { const volatile void *kind##_a = (const volatile void *)(p), *kind##_b = (const volatile void *)(q); } while (0)
#define alias(p, q) ask(alias, p, q)
#define apart(p, q) ask(apart, p, q)
";

/// The stores to the variables that `alias` and `apart` declare, in pairs.
fn questions<'m>(module: &'m Module) -> Vec<(bool, Value<'m>, Value<'m>)> {
    let mut found = Vec::new();
    let mut pending: Option<Value> = None;
    for (value, pointer) in stores(module) {
        let name = pointer.name();
        if name.starts_with("alias_a") || name.starts_with("apart_a") {
            pending = Some(value);
        } else if name.starts_with("alias_b") || name.starts_with("apart_b") {
            found.push((name.starts_with("alias"), pending.take().unwrap(), value));
        }
    }
    found
}

/// What is stored, and where.
pub(super) fn stores<'m>(module: &'m Module) -> impl Iterator<Item = (Value<'m>, Value<'m>)> {
    let instructions = module.functions().flat_map(Value::instructions);
    instructions
        .filter(|instruction| instruction.opcode() == Some(Opcode::LLVMStore))
        .map(|store| (store.operand_at(0), store.operand_at(1)))
}

fn facts(source: &str, extension: &str) {
    let context = Context::create();
    let module = module(source, extension, &context);
    let points_to = PointsTo::of(&module);
    let questions = questions(&module);
    assert!(!questions.is_empty());
    for (number, (expected, a, b)) in questions.into_iter().enumerate() {
        let [ours, theirs] = [a, b].map(|value| points_to.locations(value));
        let what = format!("question {} of\n{source}\n{ours:?}\n{theirs:?}", number + 1);
        assert_eq!(points_to.may_alias(a, b), expected, "{what}");
        assert!(!expected || !ours.is_empty(), "{what}");
    }
}

#[test]
fn fields_and_arrays() {
    facts(
        "struct pair { int *first; int *second; };
        struct deep { long header; struct pair pairs[4]; int *tail; };
        int main(int c, char **v) {
            int x, y, z;
            struct pair p = { &x, &y };
            alias(p.first, &x); apart(p.first, &y); apart(p.first, p.second);
            struct deep d;
            d.pairs[1].first = &x; d.pairs[2].second = &y; d.tail = &z;
            alias(d.pairs[c].first, &x); apart(d.pairs[c].first, &y); apart(d.pairs[c].first, &z);
            alias(d.pairs[1].first, &x); apart(d.tail, &x); alias(d.tail, &z);
            struct pair *walk = d.pairs;
            for (int i = 0; i < c; i++) walk++;
            alias(walk->first, &x); apart(walk->first, &y);
            struct pair *heap = malloc(sizeof *heap * c);
            heap[c].first = &x; heap[2 * c].second = &y;
            alias(heap[3].first, &x); apart(heap[3].first, &y); alias((heap + c)->second, &y);
            struct deep copy = d;
            alias(copy.pairs[1].first, &x); apart(copy.tail, &x); alias(copy.tail, &z);
        }",
        "c",
    );
}

#[test]
fn memory_functions() {
    facts(
        "struct node { struct node *next; int *value; };
        union both { int *pointer; long number; };
        int main(int c, char **v) {
            int x, y;
            struct node *a = malloc(sizeof *a), *b = malloc(sizeof *b), *r;
            a->next = b; a->value = &x; b->value = &y; b->next = 0;
            apart(a, b); apart(a->value, b->value); alias(a->next, b);
            r = realloc(a, 100);
            alias(r->value, &x); apart(r->value, &y); alias(r->next->value, &y);
            struct node m;
            memcpy(&m, a, sizeof m);
            alias(m.value, &x); apart(m.value, &y);
            struct node bytes;
            for (int i = 0; i < sizeof m; i++) ((char *)&bytes)[i] = ((char *)a)[i];
            alias(bytes.value, &x);
            union both u, w; u.pointer = &x; w.number = u.number;
            alias(w.pointer, &x); apart(w.pointer, &y);
            int *p = &x, *q = 0;
            __atomic_store(&q, &p, __ATOMIC_SEQ_CST);
            alias(q, &x); apart(q, a);
            int *old = __atomic_exchange_n(&q, &y, __ATOMIC_SEQ_CST);
            alias(old, &x); alias(q, &y);
            uintptr_t number = (uintptr_t)a;
            struct node *back = (struct node *)((number + 63) & ~(uintptr_t)63);
            alias(back, a); apart(back, b);
        }",
        "c",
    );
}

/// Rows of the table of library functions that were wrong in its predecessor: arguments counted from the wrong end, and results
/// that come from an earlier call.
#[test]
fn functions_of_libraries() {
    facts(
        "#define _GNU_SOURCE
        struct node { struct node *next; int *value; };
        const char *inet_ntop(int, const void *, char *, unsigned);
        void *memccpy(void *, const void *, int, size_t);
        char *strtok(char *, const char *), *strtok_r(char *, const char *, char **);
        int getaddrinfo(const char *, const char *, const void *, void **);
        int main(int c, char **v) {
            int x;
            struct node a = { 0, &x }, b = { 0, 0 };
            memccpy(&b, &a, 0, sizeof a);
            alias(b.value, &x);
            char text[16], other[16], *rest;
            alias(inet_ntop(2, &c, text, 16), text); apart(inet_ntop(2, &c, text, 16), other);
            char *first = strtok(text, \" \"), *next = strtok(0, \" \");
            alias(first, text); alias(next, text); apart(next, other);
            strtok_r(other, \" \", &rest);
            char *last = strtok_r(0, \" \", &rest);
            alias(last, other); apart(last, text);
            void *found;
            getaddrinfo(text, other, 0, &found);
            void *same = found;
            alias(same, found); apart(found, text);
        }",
        "c",
    );
}

#[test]
fn functions() {
    facts(
        "static int x, y, z;
        static int *one(int *p) { return p; }
        static int *two(int *p) { return &y; }
        static int *own(int *p) { return p; }
        static int *(*table[])(int *) = { one, two };
        static int *only(int *(*f)(int *), int *p) { return f(p); }
        static int *further(int n, ...) { va_list l; va_start(l, n); int *p = va_arg(l, int *); va_end(l); return p; }
        struct big { int *a; long b[8]; int *c; };
        static int *by_value(struct big s) { s.b[0] = 1; return s.c; }
        static struct big give(void) { struct big s; s.a = &x; s.c = &y; return s; }
        static int *recursive(int n, int *p) { return n ? recursive(n - 1, p) : p; }
        int main(int c, char **v) {
            int *p = table[c](&x);
            alias(p, &x); alias(p, &y); apart(p, &z);
            int *q = only(own, &z);
            alias(q, &z); apart(q, &x);
            alias(further(1, &x), &x); apart(further(1, &x), &z);
            struct big s = { &x, { 0 }, &y };
            alias(by_value(s), &y); apart(by_value(s), &z);
            alias(give().c, &y); apart(give().c, &z);
            alias(recursive(c, &x), &x); apart(recursive(c, &x), &y);
            int *sorted[4] = { &x };
            alias(sorted[0], &x);
        }",
        "c",
    );
}

#[test]
fn what_escapes() {
    facts(
        "void stranger(void *); void *unknown(void);
        struct cell { struct cell *next; int *value; };
        static int kept, given;
        int main(int c, char **v) {
            int hidden;
            struct cell inner = { 0, &kept }, outer = { &inner, &given }, own = { 0, &hidden };
            stranger(&outer);
            alias(unknown(), &outer); alias(unknown(), &inner); alias(unknown(), &kept); apart(unknown(), &own); apart(unknown(), &hidden);
            alias(inner.next, &outer); apart(own.value, &kept);
            alias((int *)(long)c, &kept); apart((int *)(long)c, &hidden);
            alias(v[0], unknown());
        }",
        "c",
    );
}

#[test]
fn cpp() {
    facts(
        "struct Base { virtual int *get() { return nullptr; } virtual ~Base() {} };
        static int x, y;
        struct A : Base { int *held; A(int *p) : held(p) {} int *get() override { return held; } };
        struct B : Base { int *get() override { return &y; } };
        static int *thrower(int *p) { try { throw p; } catch (int *caught) { return caught; } }
        int main(int c, char **v) {
            Base *a = new A(&x);
            alias(a->get(), &x);
            alias(thrower(&x), &x);
            auto lambda = [&](int *p) { return c ? p : nullptr; };
            alias(lambda(&y), &y);
            delete a;
        }",
        "cpp",
    );
}

#[test]
fn callees() {
    let context = Context::create();
    let source = "static void one(void) {} static void two(void) {} static void three(void) {}
        void (*take(void))(void);
        static void (*choice)(void) = one;
        static struct { int n; void (*f)(void); void (*g)(void); } table[2] = { { 1, one, three }, { 2, two, three } };
        int main(int c, char **v) { choice(); if (c) choice = two; table[c].f(); table[c].g(); take()(); }";
    let module = module(source, "c", &context);
    let points_to = PointsTo::of(&module);
    let mut answers = Vec::new();
    for call in module.function("main").unwrap().instructions() {
        if call.is_indirect_call() {
            let (functions, open) = match points_to.callees(call) {
                Callees::Closed(functions) => (functions, ""),
                Callees::Open(functions) => (functions, "?"),
            };
            let mut names: Vec<&str> = functions.into_iter().map(Value::name).collect();
            names.sort();
            answers.push(names.join(" ") + open);
        }
    }
    assert_eq!(answers, ["one two", "one two", "three", "?"]);
}
