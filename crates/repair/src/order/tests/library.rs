//! Programs that flush by functions: PMDK's, or their own with a delay in them, as persistent indexes have it.

use super::{in_order, reason};

const PMDK: &str = "#include <string.h>
typedef struct pool pool;
typedef int (*constructor)(pool *, void *, void *);
void pmem_persist(const void *, size_t);
void *pmem_memcpy_persist(void *, const void *, size_t);
void pmemobj_persist(pool *, const void *, size_t);
int pmemobj_alloc(pool *, uint64_t *, size_t, uint64_t, constructor, void *);
int allocate(pool *, uint64_t *);
";

/// A flush with a delay.
const OWN: &str = "static unsigned long delay;
static inline unsigned long cycles(void) {
    unsigned low, high;
    __asm__ volatile(\"rdtsc\" : \"=a\"(low), \"=d\"(high));
    return (unsigned long)high << 32 | low;
}
static void persist(void *p, unsigned long size) {
    for (unsigned long i = 0; i < size; i += 64) {
        unsigned long until = cycles() + delay;
        CLWB((char *)p + i);
        while (cycles() < until)
            __asm__ volatile(\"pause\" : : : \"memory\");
    }
    SFENCE();
}
";

#[track_caller]
fn becomes(code: &str, expected: &str) {
    let text = in_order(code);
    assert!(text.contains(expected), "{text}");
}

fn behind_a_call(call: &str) -> String {
    format!(
        "{PMDK}void f(pool *pop, struct record *r) {{
    {call}
    r->valid = 1; //~ after; store 128 8
    pmemobj_persist(pop, &r->valid, 8); //~ flush 128; fence
    r->value = 7; //~ before; store 0 8
    pmemobj_persist(pop, &r->value, 8); //~ flush 0; fence
}}
"
    )
}

#[test]
fn libpmemobj_leaves_nothing_that_waits_for_a_fence() {
    becomes(
        &behind_a_call("pmemobj_alloc(pop, &r->other, 8, 0, 0, 0);"),
        "    r->value = 7;
    pmemobj_persist(pop, &r->value, 8);
    r->valid = 1;
    pmemobj_persist(pop, &r->valid, 8);
",
    );
    let reason = reason(&behind_a_call("allocate(pop, &r->other);"));
    assert!(reason.contains("must not come later"), "{reason}");
}

#[test]
fn what_is_copied_behind_a_member_does_not_touch_it() {
    let text = |member: &str| {
        format!(
            "{PMDK}struct text {{ uint64_t length; char bytes[100]; uint64_t end; }};
void f(struct text *t, int n) {{
    char from[100];
    memset(from, n, sizeof from);
    t->{member} = n; //~ after; store 0 8
    pmem_persist(&t->{member}, 8); //~ flush 0; fence
    pmem_memcpy_persist(t->bytes, from, n); //~ before; store 64 8; flush 64; fence
}}
"
        )
    };
    becomes(
        &text("length"),
        "    pmem_memcpy_persist(t->bytes, from, n);
    t->length = n;
    pmem_persist(&t->length, 8);
",
    );
    let reason = reason(&text("end"));
    assert!(reason.contains("may touch the same memory"), "{reason}");
}

#[test]
fn a_flush_that_waits_by_the_clock_is_one() {
    becomes(
        &format!(
            "{OWN}void f(struct record *r) {{
    r->valid = 1; //~ after; store 128 8
    persist(&r->valid, 8); //~ flush 128; fence
    r->value = 7; //~ before; store 0 8
    persist(&r->value, 8); //~ flush 0; fence
}}
"
        ),
        "    r->value = 7;
    persist(&r->value, 8);
    r->valid = 1;
    persist(&r->valid, 8);
",
    );
}

/// In the recording one flush reaches both; wherever the object lies next time, each needs its own.
#[test]
fn members_in_one_line_by_chance_are_flushed_by_their_own_flushes() {
    becomes(
        &format!(
            "{OWN}struct counted {{ uint64_t count; uint64_t dirty; }};
void f(struct counted *r) {{
    r->dirty = 0; //~ after; store 8 8
    persist(&r->dirty, 8); //~ flush 0; fence
    r->count = 5; //~ before; store 0 8
    persist(&r->count, 8); //~ flush 0; fence
}}
"
        ),
        "    r->count = 5;
    persist(&r->count, 8);
    r->dirty = 0;
    persist(&r->dirty, 8);
",
    );
}

/// The flush of the second has to stay where it is, for what may wait for it; that of the first would reach both here, and need not elsewhere.
#[test]
fn an_order_by_chance_of_a_line_is_not_taken() {
    becomes(
        &format!(
            "{OWN}struct counted {{ uint64_t count; uint64_t dirty; }};
int other(void);
void f(struct counted *r) {{
    other();
    r->dirty = 0; //~ after; store 8 8
    persist(&r->dirty, 8); //~ flush 0; fence
    r->count = 5; //~ before; store 0 8
    persist(&r->count, 8); //~ flush 0; fence
}}
"
        ),
        "    persist(&r->dirty, 8);
    r->count = 5;
    CLWB(&r->count);
    SFENCE();
    r->dirty = 0;
    CLWB(&r->dirty);
    SFENCE();
",
    );
}

#[test]
fn a_declaration_that_is_not_used_is_passed() {
    becomes(
        "void f(struct record *r, int n) {
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
    int more = n;
    r->value = 7; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
    r->other = more;
}
",
        "    int more = n;
    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
",
    );
}

#[test]
fn a_later_flush_moves_in_front_of_the_fence_that_is_there() {
    becomes(
        "void f(struct record *r, struct record *s) {
    r->value = 7; //~ before; store 0 8
    s->value = 8; //~ store 256 8
    CLWB(&s->value); //~ flush 256
    SFENCE(); //~ fence
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
        "    CLWB(&s->value);
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    CLWB(&r->valid);
    SFENCE();
",
    );
}

/// As in PMDK's hash map: what `D_RW` expands to has a member `oid`, which is not the variable; the constructor persists what it stores; where there is no entry, it returns.
#[test]
fn pmdks_own_macros_and_lists_are_no_obstacle() {
    becomes(
        "#include <libpmemobj.h>
#include <stdio.h>
struct entry;
TOID_DECLARE(struct entry, 1);
struct entry { uint64_t key; PMEMoid value; POBJ_LIST_ENTRY(struct entry) list; };
struct counted;
TOID_DECLARE(struct counted, 2);
POBJ_LIST_HEAD(entries, struct entry);
struct counted { uint64_t count; uint32_t dirty; struct entries entries; };
static int make(PMEMobjpool *pop, void *at, void *of) {
    struct entry *e = (struct entry *)at;
    e->key = ((struct entry *)of)->key;
    e->value = ((struct entry *)of)->value;
    memset(&e->list, 0, sizeof(e->list));
    pmemobj_persist(pop, e, sizeof(*e));
    return 0;
}
int f(PMEMobjpool *pop, TOID(struct counted) map, uint64_t key, int n) {
    struct entry args = {.key = key};
    PMEMoid made = POBJ_LIST_INSERT_NEW_HEAD(pop, &D_RW(map)->entries, list, sizeof(struct entry), make, &args);
    if (OID_IS_NULL(made)) {
        fprintf(stderr, \"%s\", pmemobj_errormsg());
        return -1;
    }
    D_RW(map)->dirty = 0; //~ after; store 8 4
    pmemobj_persist(pop, &D_RW(map)->dirty, sizeof(D_RW(map)->dirty)); //~ flush 0; fence
    int oid = n;
    D_RW(map)->count++; //~ before; store 0 8
    pmemobj_persist(pop, &D_RW(map)->count, sizeof(D_RW(map)->count)); //~ flush 0; fence
    return oid;
}
",
        "    int oid = n;
    D_RW(map)->count++;
    pmemobj_persist(pop, &D_RW(map)->count, sizeof(D_RW(map)->count));
    D_RW(map)->dirty = 0;
    pmemobj_persist(pop, &D_RW(map)->dirty, sizeof(D_RW(map)->dirty));
",
    );
}
