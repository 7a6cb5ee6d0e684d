//! What another execution may do than the recorded one: no move may rely on what it did.

use super::{in_order, reason};

const FUNCTIONS: &str = "struct wide { _Alignas(64) uint64_t value; _Alignas(64) uint64_t valid; _Alignas(64) uint64_t other; _Alignas(64) uint64_t slots[16]; };
__attribute__((unused)) static void persist(void *p, unsigned long size) {
    for (unsigned long i = 0; i < size; i += 64)
        CLWB((char *)p + i);
    SFENCE();
}
__attribute__((unused)) static void put(uint64_t *p, uint64_t value, int sync) {
    *p = value;
    CLWB(p);
    if (sync)
        SFENCE();
}
__attribute__((unused)) static void put_with(struct wide *r, uint64_t *p) {
    r->valid = 1;
    CLWB(p);
    CLWB(&r->valid);
    SFENCE();
}
__attribute__((unused)) static void set(uint64_t *p, uint64_t value) {
    *p = value;
}
__attribute__((unused)) static void flush_if(struct wide *r, int n) {
    if (n)
        CLWB(&r->other);
}
__attribute__((unused)) static void drain(int sync) {
    if (sync)
        SFENCE();
}
static int ready = 1;
__attribute__((unused)) static void wait_ready(void) {
    while (!ready)
        __asm__ volatile(\"pause\" : : : \"memory\");
}
__attribute__((unused)) static unsigned long cycles(void) {
    unsigned low, high;
    __asm__ volatile(\"rdtsc\" : \"=a\"(low), \"=d\"(high));
    return (unsigned long)high << 32 | low;
}
typedef uint64_t word;
#define SET(x, v) (*(word *)&(x) = (word)(v))
typedef struct pool pool;
void *pmem_memcpy(void *, const void *, size_t, unsigned);
void pmem_persist(const void *, size_t);
typedef int (*constructor)(pool *, void *, void *);
int pmemobj_alloc(pool *, uint64_t *, size_t, uint64_t, constructor, void *);
int pmemobj_reserve(pool *, uint64_t *);
";

fn function(body: &str) -> String {
    format!(
        "{FUNCTIONS}void f(struct wide *r, struct wide *s, uint64_t *p, int n, pool *pop, constructor make) {{\n{body}\n    (void)r, (void)s, (void)p, (void)n, (void)pop, (void)make;\n}}\n"
    )
}

#[track_caller]
fn refused(body: &str, because: &str) {
    let reason = reason(&function(body));
    assert!(reason.contains(because), "{reason}");
}

/// The order after the repair does not have `line` in front of `other`.
#[track_caller]
fn keeps(body: &str, first: &str, second: &str) {
    let text = in_order(&function(body));
    let (_, text) = text.split_once("void f(").expect("the function");
    let place = |line: &str| text.find(line).unwrap_or_else(|| panic!("{line}: {text}"));
    assert!(place(first) < place(second), "{text}");
}

const SECOND_FIRST: &str = "    r->valid = 1; //~ after; store 64 8
    persist(&r->valid, 8); //~ flush 64; fence
    r->value = 7; //~ before; store 0 8
    persist(&r->value, 8); //~ flush 0; fence";

fn behind(statement: &str) -> String {
    format!("    {statement}\n{SECOND_FIRST}")
}

fn with_between(statement: &str) -> String {
    SECOND_FIRST.replace("    r->value", &format!("    {statement}\n    r->value"))
}

#[test]
fn a_function_fences_in_a_branch() {
    refused(
        "    r->other = 1; //~ store 128 8
    CLWB(&r->other); //~ flush 128
    put(&r->valid, 1, n); //~ after; store 64 8; flush 64
    r->value = 7; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence",
        "must not come later",
    );
    refused(
        &behind("put(&r->other, 1, n); //~ store 128 8; flush 128; fence"),
        "must not come later",
    );
}

#[test]
fn a_function_flushes_what_it_is_given() {
    refused(
        "    r->other = 5; //~ store 128 8
    put_with(r, p); //~ after; store 64 8; flush 192; flush 64; fence
    r->value = 7; //~ before; store 0 8
    persist(&r->value, 8); //~ flush 0; fence",
        "must not come later",
    );
}

/// The flush stays behind; another one is added.
#[test]
fn a_function_stores_where_it_is_told() {
    keeps(
        "    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 64 8
    set(&s->value, 9); //~ store 1024 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 64
    SFENCE(); //~ fence",
        "set(&s->value, 9);\n    CLWB(&r->value);",
        "CLWB(&r->valid);",
    );
}

#[test]
fn a_function_flushes_in_a_branch() {
    keeps(
        "    if (n)
        r->other = 3;
    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 64 8
    flush_if(r, n);
    persist(&r->value, 8); //~ flush 0; fence",
        "flush_if(r, n);\n    persist(&r->value, 8);",
        "(void)r",
    );
}

#[test]
fn a_loop_flushes_more_than_was_recorded() {
    keeps(
        "    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 64 8
    r->slots[9] = 5; //~ store 264 8
    for (int i = 0; i < n; i++)
        CLWB((char *)r + i * 64); //~ flush 0
    SFENCE(); //~ fence",
        "r->slots[9] = 5;\n    for (int i = 0; i < n; i++)",
        "(void)r",
    );
}

#[test]
fn nothing_moves_past_what_waits() {
    for wait in [
        "wait_ready();",
        "while (!ready)\n        __asm__ volatile(\"pause\" : : : \"memory\");",
        "__asm__ volatile(\"nop\");",
    ] {
        refused(&with_between(wait), "may wait for another thread");
    }
}

#[test]
fn the_clock_is_read_in_order() {
    refused(
        "    r->valid = cycles(); //~ after; store 64 8
    persist(&r->valid, 8); //~ flush 64; fence
    r->value = cycles(); //~ before; store 0 8
    persist(&r->value, 8); //~ flush 0; fence",
        "reads the clock",
    );
}

#[test]
fn flags_may_say_not_to_wait() {
    refused(
        &behind("pmem_memcpy(r->slots, p, 64, n); //~ store 192 8; flush 192; fence"),
        "must not come later",
    );
    keeps(
        &behind("pmem_memcpy(r->slots, p, 64, 0); //~ store 192 8; flush 192; fence"),
        "r->value = 7;",
        "r->valid = 1;",
    );
}

#[test]
fn a_macro_names_what_is_declared_in_between() {
    for (declaration, first) in [
        (
            "typedef uint8_t word;\n    r->other = (word)n;",
            "typedef uint8_t word;",
        ),
        ("uint64_t word = n;\n    r->other = word;", "uint64_t word = n;"),
        ("enum { word = 3 };\n    r->other = word;", "enum { word = 3 };"),
    ] {
        let body = with_between(declaration).replace("r->valid = 1;", "SET(r->valid, n);");
        keeps(&body, "SET(r->valid, n);", first);
    }
}

#[test]
fn only_known_functions_of_libpmemobj_leave_nothing() {
    refused(
        &behind("pmemobj_alloc(pop, &r->other, 8, 0, make, 0);"),
        "must not come later",
    );
    refused(&behind("pmemobj_reserve(pop, &r->other);"), "must not come later");
}

#[test]
fn a_fence_in_a_branch_is_none() {
    let text = in_order(&function(
        "    r->value = 7; //~ before; store 0 8
    s->value = 8; //~ store 1024 8
    CLWB(&s->value); //~ flush 1024
    drain(n); //~ fence
    r->valid = 1; //~ after; store 64 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 64
    SFENCE(); //~ fence",
    ));
    let (_, after) = text.split_once("drain(n);").expect("the call");
    let (between, _) = after.split_once("r->valid = 1;").expect("the store");
    assert!(between.contains("SFENCE();"), "{text}");
}
