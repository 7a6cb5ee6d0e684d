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
__attribute__((unused)) static void fence_then_flush_if(struct wide *r, int n) {
    SFENCE();
    if (n)
        CLWB(&r->other);
}
static void flush(void *p, int sync) {
    CLWB(p);
    if (sync)
        SFENCE();
}
__attribute__((unused)) static void flush_twice(void *p, int sync) {
    flush(p, !sync);
    flush(p, sync);
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
#define STREAM(p, v) __asm__ volatile(\"movnti %1, %0\" : \"=m\"(*(p)) : \"r\"((uint64_t)(v)))
#define SET(x, v) (*(word *)&(x) = (word)(v))
typedef struct pool pool;
void *pmem_memcpy(void *, const void *, size_t, unsigned);
void pmem_persist(const void *, size_t);
typedef int (*constructor)(pool *, void *, void *);
int pmemobj_alloc(pool *, uint64_t *, size_t, uint64_t, constructor, void *);
int pmemobj_reserve(pool *, uint64_t *);
int allocate(pool *);
void pmemobj_persist(pool *, const void *, size_t);
__attribute__((unused)) static int make_persistent(pool *pop, void *at, void *of) {
    struct wide *made = at;
    made->value = *(uint64_t *)of;
    pmemobj_persist(pop, made, sizeof *made);
    return 0;
}
__attribute__((unused)) static int make_in_part(pool *pop, void *at, void *of) {
    struct wide *made = at;
    made->value = *(uint64_t *)of;
    made->other = 1;
    pmemobj_persist(pop, made, 64);
    return 0;
}
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

/// What a constructor leaves unflushed may lie in the line that the first flush is of.
#[test]
fn a_constructor_persists_what_it_stores() {
    let made = |by: &str| {
        let body = behind(&format!("pmemobj_alloc(pop, p, sizeof *r, 0, {by}, p);"));
        let caller = "void *pmemobj_direct(uint64_t);
void g(pool *pop, uint64_t *p) {
    struct wide *r = pmemobj_direct(*p);
    f(r, r, p, 0, pop, 0);
}
";
        function(&body) + caller
    };
    let text = in_order(&made("make_persistent"));
    assert!(
        text.contains("r->value = 7;\n    persist(&r->value, 8);\n    r->valid = 1;"),
        "{text}"
    );
    let reason = reason(&made("make_in_part"));
    assert!(reason.contains("must not come later"), "{reason}");
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

/// What is stored past the cache waits for a fence, too.
#[test]
fn a_branch_stores_past_the_cache() {
    for stored in ["STREAM(&r->other, n);", "__builtin_nontemporal_store(1, &r->other);"] {
        refused(&behind(&format!("if (n)\n        {stored}")), "must not come later");
    }
}

#[test]
fn a_flush_behind_the_fence_of_a_function_waits() {
    refused(&behind("fence_then_flush_if(r, n); //~ fence"), "must not come later");
    refused(&behind("flush_if(r, n);"), "must not come later");
}

/// The first fence is there for it, too.
#[test]
fn the_list_flushes_what_was_stored_before_it() {
    let body = |before: &str| {
        let list = behind("CLWB(&r->other); //~ flush 128").replace("\n", "\n    ");
        format!("{before}\n    {{\n    {list}\n    }}")
    };
    refused(
        &body("    r->other = 5; //~ store 128 8"),
        "what line 99 (`persist(&r->value, 8)`) is there for",
    );
    keeps(&body(""), "r->value = 7;", "r->valid = 1;");
    // And if another fence is not always made.
    let list = |fence: &str| {
        let list = behind(fence).replace("\n", "\n    ");
        format!("    r->other = 5; //~ store 128 8\n    CLWB(&r->other); //~ flush 128\n    {{\n    {list}\n    }}")
    };
    refused(&list("drain(n); //~ fence"), "is there for");
    keeps(&list("drain(1); //~ fence"), "r->value = 7;", "r->valid = 1;");
}

/// Where an error returns, nothing behind it is done.
#[test]
fn what_returns_leaves_nothing() {
    keeps(
        &behind("if (n < 0) {\n        allocate(pop);\n        return;\n    }"),
        "r->value = 7;",
        "r->valid = 1;",
    );
    refused(
        &behind("if (n < 0) {\n        allocate(pop);\n        n = 0;\n    }"),
        "must not come later",
    );
}

#[test]
fn a_copy_that_does_not_wait_is_no_fence() {
    let text = in_order(&function(
        "    r->value = 7; //~ before; store 0 8
    drain(n); //~ fence
    pmem_memcpy(s->slots, p, 64, 1); //~ store 1216 8; flush 1216
    r->valid = 1; //~ after; store 64 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 64
    SFENCE(); //~ fence",
    ));
    let (_, after) = text.split_once("pmem_memcpy(s->").expect("the call");
    let (between, _) = after.split_once("r->valid = 1;").expect("the store");
    assert!(between.contains("SFENCE();"), "{text}");
}

/// A function that is told by a constant to wait does, and leaves nothing to wait for.
#[test]
fn a_constant_tells_a_function_what_to_do() {
    let body = |sync: &str| {
        format!(
            "    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 64 8
    flush(&r->valid, {sync}); //~ flush 64; fence
    flush(&r->value, {sync}); //~ flush 0; fence"
        )
    };
    let between = |sync: &str| {
        let text = in_order(&function(&body(sync)));
        let (_, after) = text.split_once("r->value = 7;").expect("the first");
        after.split_once("r->valid = 1;").expect("the second").0.to_owned()
    };
    assert_eq!(between("1"), "\n    flush(&r->value, 1);\n    ");
    assert!(between("n").contains("SFENCE();"), "{}", between("n"));
}

#[test]
fn a_constant_is_followed_into_calls() {
    let body = |how: &str| behind(&format!("if (n)\n        flush_twice(&r->other, {how});"));
    keeps(&body("1"), "r->value = 7;", "r->valid = 1;");
    refused(&body("0"), "must not come later");
    refused(&body("n"), "must not come later");
}

/// The fence that is always there comes in front of the flush, and the one behind it does not always.
#[test]
fn a_fence_in_front_of_the_flush_is_none() {
    let text = in_order(&function(
        "    r->valid = 1; //~ after; store 64 8
    CLWB(&r->valid); //~ flush 64
    r->value = 7; //~ before; store 0 8
    SFENCE(); //~ fence
    CLWB(&r->value); //~ flush 0
    drain(n); //~ fence",
    ));
    let (_, after) = text.split_once("r->value = 7;").expect("the first");
    let (between, _) = after.split_once("r->valid = 1;").expect("the second");
    let (_, behind) = between.split_once("CLWB(&r->value);").expect("the flush");
    assert!(behind.contains("SFENCE();"), "{text}");
}
