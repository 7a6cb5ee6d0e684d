//! Snippets with a trace written on their lines, and what becomes of them.
//!
//! ` //~ ` begins the events of a line, in the order in which they happened: `store ADDR LEN`, `ntstore ADDR LEN`, `flush ADDR`, `fence`. `before` and `after`
//! mark the line whose store has to persist first, and the other. The lines run once, from the first to the last, unless `again` repeats them.

mod atomicity;
mod harness;
mod library;
mod refusals;
mod unseen;

use harness::{left, ordered};

const TYPES: &str = "#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define CLWB(p) __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)(p)) : : \"memory\")
#define SFENCE() __asm__ volatile(\"sfence\" : : : \"memory\")
#define BARRIER() __asm__ volatile(\"\" : : : \"memory\")

struct record {
    _Alignas(64) uint64_t value;
    uint64_t other;
    _Alignas(64) uint64_t valid;
};

";

/// The function without what comes before it.
fn in_order(code: &str) -> String {
    let text = ordered(&format!("{TYPES}{code}"));
    text.split_once("valid;\n};\n\n")
        .map_or(text.clone(), |(_, code)| code.to_owned())
}

fn reason(code: &str) -> String {
    left(&format!("{TYPES}{code}"))
}

#[test]
fn a_fence_comes_in_between() {
    let text = in_order(
        "void f(struct record *r) {
    r->value = 7; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {
    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}

#[test]
fn what_is_not_flushed_is_persisted_behind_the_store() {
    let text = in_order(
        "void f(struct record *r) {
    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {
    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}

#[test]
fn a_later_flush_moves_up() {
    let text = in_order(
        "void f(struct record *r) {
    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {
    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}

#[test]
fn a_store_moves_with_its_flush_and_its_comment() {
    let text = in_order(
        "void f(struct record *r) {
    // The record is there.
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence

    r->value = 7; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {

    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    // The record is there.
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}

#[test]
fn a_branch_is_one_unit() {
    let text = in_order(
        "void f(struct record *r, int n) {
    r->valid = 1; //~ after; store 128 8
    if (n > 0) {
        r->value = 7; //~ before; store 0 8
        CLWB(&r->value); //~ flush 0
    } else {
        r->other = 1;
        CLWB(&r->other);
    }
    SFENCE(); //~ fence
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r, int n) {
    if (n > 0) {
        r->value = 7;
        CLWB(&r->value);
    } else {
        r->other = 1;
        CLWB(&r->other);
    }
    SFENCE();
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}

/// In one line no fence is needed, but something that keeps the compiler from swapping the stores again.
#[test]
fn within_a_line_a_barrier_is_enough() {
    let text = in_order(
        "void f(struct record *r) {
    r->other = 1; //~ after; store 8 8
    BARRIER();
    r->value = 7; //~ before; store 0 8
    CLWB(r); //~ flush 0
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {
    r->value = 7;
    BARRIER();
    r->other = 1;
    CLWB(r);
    SFENCE();
}
"
    );
}

#[test]
fn a_nontemporal_store_needs_only_the_fence() {
    let text = in_order(
        "void f(struct record *r) {
    __asm__ volatile(\"movnti %1, %0\" : \"=m\"(r->value) : \"r\"((uint64_t)7) : \"memory\"); //~ before; ntstore 0 8
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert!(
        text.contains(": \"memory\");\n    SFENCE();\n    r->valid = 1;"),
        "{text}"
    );
}

/// A flush that would no longer cover what it did is not moved.
#[test]
fn what_was_durable_stays_so() {
    let text = in_order(
        "void f(struct record *r) {
    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 128 8
    r->other = 2; //~ store 8 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {
    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    r->other = 2;
    CLWB(&r->value);
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}

#[test]
fn a_step_moves_out_of_a_declaration() {
    let text = in_order(
        "void f(struct record *r) {
    uint64_t slot = r->valid++; // the next //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
    r->value = slot; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
}
",
    );
    assert_eq!(
        text,
        "void f(struct record *r) {
    uint64_t slot = r->valid; // the next
    r->value = slot;
    CLWB(&r->value);
    SFENCE();
    r->valid++;
    CLWB(&r->valid);
    SFENCE();
}
"
    );
}
