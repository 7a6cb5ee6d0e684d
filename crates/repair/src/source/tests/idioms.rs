//! Flushes and fences in the words of the program.

use insta::assert_snapshot;

use super::harness::{repaired, repaired_c, repaired_cxx};

const PERSIST: &str = "#ifndef PERSIST_H
#define PERSIST_H
#include <stddef.h>
#include <stdint.h>

static inline void pm_flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)line) : : \"memory\");
}

static inline void pm_fence(void) {
    __asm__ volatile(\"sfence\" : : : \"memory\");
}

static inline void pm_persist(const void *at, size_t len) {
    pm_flush(at, len);
    pm_fence();
}

#endif
";

#[test]
fn own_functions() {
    assert_snapshot!(repaired(&[
        ("persist.h", PERSIST),
        (
            "a.c",
            "#include \"persist.h\"

struct log {
    uint64_t head, tail;
    volatile int state;
};

void f(struct log *log) {
    log->head = 1; //~ flush+fence
    log->tail = 2; //~ flush
    log->state = 3; //~ flush
    pm_flush(log, sizeof *log); //~ fence
    pm_persist(log, sizeof *log);
}
"
        ),
        (
            "sub/b.c",
            "struct log;

void g(long *p) {
    *p = 1; //~ flush+fence
}
"
        ),
    ]));
}

#[test]
fn only_a_persist_function_that_takes_characters() {
    assert_snapshot!(repaired_c(
        "#include <stdint.h>
#include <immintrin.h>

static void sync_range(char *p, unsigned n) {
    for (uintptr_t at = (uintptr_t)p & ~63ul; at < (uintptr_t)p + n; at += 64)
        _mm_clwb((void *)at);
    _mm_sfence();
}

void f(uint64_t *p, char *s) {
    *p = 1; //~ flush+fence
    sync_range(s, 8);
    *s = 2; //~ flush
    p[1] = 3; //~ flush+fence
    sync_range((char *)p, 8); //~ fence
}
"
    ));
}

#[test]
fn macros() {
    assert_snapshot!(repaired_c(
        "#define FLUSH(p) __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)(p)) : : \"memory\")
#define FENCE() __asm__ volatile(\"sfence\" : : : \"memory\")
#define PERSIST(p) \\
    do {           \\
        FLUSH(p);  \\
        FENCE();   \\
    } while (0)

struct s {
    long a;
    char text[80];
};

void f(struct s *p) {
    p->a = 1; //~ flush+fence
    PERSIST(&p->a);
    p->a = 2; //~ flush
    __builtin_memset(p->text, 0, 80); //~ flush+fence
    FLUSH(p); //~ fence
}
"
    ));
}

#[test]
fn intrinsics() {
    assert_snapshot!(repaired_c(
        "#include <immintrin.h>

void f(long *p, long *q) {
    *p = 1; //~ flush+fence
    _mm_clwb(p);
    _mm_sfence();
    *q = 2; //~ flush
}
"
    ));
}

#[test]
fn an_argument_before_the_range() {
    assert_snapshot!(repaired(&[
        (
            "nvm.h",
            "#ifndef NVM_H
#define NVM_H
#include <stddef.h>
#include <stdint.h>
struct nvm { uint64_t syncs; };
void nvm_sync(struct nvm *nvm, const void *at, size_t len);
#endif
"
        ),
        (
            "nvm.c",
            "#include \"nvm.h\"
void nvm_sync(struct nvm *nvm, const void *at, size_t len) {
    const char *end = (const char *)at + len;
    for (const char *line = (const char *)((uintptr_t)at & ~(uintptr_t)63); line < end; line += 64)
        __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)line) : : \"memory\");
    __asm__ volatile(\"sfence\" : : : \"memory\");
    nvm->syncs++;
}
"
        ),
        (
            "a.c",
            "#include \"nvm.h\"

static struct nvm nvm;

void f(long *p) {
    *p = 1; //~ flush+fence
    nvm_sync(&nvm, p, sizeof *p);
}
"
        ),
        (
            "b.c",
            "#include \"nvm.h\"

void g(long *p, struct nvm *to) {
    *p = 1; //~ flush+fence
}

void h(long *p) {
    *p = 1; //~ flush
}
"
        ),
    ]));
}

#[test]
fn libraries() {
    assert_snapshot!(repaired_c(
        "#include <libpmem.h>

void f(long *p, size_t n) {
    p = pmem_map_file(\"x\", n, 0, 0, 0, 0);
    *p = 1; //~ flush+fence
}
"
    ));
    assert_snapshot!(repaired_c(
        "#include <libpmemobj.h>

void f(PMEMobjpool *pop, long *p) {
    *p = 1; //~ flush+fence
    pmemobj_persist(pop, p, 8);
    *p = 2; //~ flush
}
"
    ));
}

#[test]
fn namespaces() {
    assert_snapshot!(repaired_cxx(
        "#include <cstdint>
#include <cstddef>
namespace nvm {
inline void flush(const void *at, std::size_t len) {
    auto end = reinterpret_cast<std::uintptr_t>(at) + len;
    for (auto line = reinterpret_cast<std::uintptr_t>(at) / 64 * 64; line < end; line += 64)
        asm volatile(\"clwb %0\" : \"+m\"(*reinterpret_cast<volatile char *>(line)));
}
inline void fence() { asm volatile(\"sfence\" ::: \"memory\"); }
} // namespace nvm

struct Cell {
    volatile long value;
    void set(long v) {
        value = v; //~ flush+fence
    }
};

void f(Cell &cell) {
    cell.set(1);
    nvm::flush(&cell, sizeof(cell));
    nvm::fence();
}
"
    ));
}

const UNUSED: &str = "#include <stddef.h>
#include <stdint.h>
static inline void nvm_flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)line) : : \"memory\");
}
static inline void forget_the_end(const void *at, size_t len) {
    for (size_t i = 0; i < len; i += 64)
        __asm__ volatile(\"clwb %0\" : \"+m\"(((volatile char *)at)[i]) : : \"memory\");
}
static inline void nvm_fence(void) {
    __asm__ volatile(\"sfence\" : : : \"memory\");
}
";

const USER: &str = "#include \"nvm.h\"

void f(long *p) {
    *p = 1; //~ flush
    nvm_fence();
}
";

#[test]
fn functions_that_nobody_calls_are_known_by_what_they_do() {
    let repaired_with = |header: &str| repaired(&[("nvm.h", header), ("a.c", USER)]);
    let patched = repaired_with(UNUSED);
    assert!(
        patched.contains("    *p = 1;\n    nvm_flush(p, sizeof(*p));\n"),
        "{patched}"
    );
    // Of two, nothing says which.
    let another = UNUSED.replace("nvm_flush", "nvm_write_back");
    let both = format!(
        "{UNUSED}{}",
        another[..another.find("static inline void forget").unwrap()].to_owned()
    );
    let patched = repaired_with(&both);
    assert!(patched.contains("crashproof_flush(p, sizeof(*p));"), "{patched}");
    let none = UNUSED.replace("line < end", "line <= end");
    assert!(repaired_with(&none).contains("crashproof_flush(p, sizeof(*p));"));
}

#[test]
fn an_object_is_flushed_with_what_branches_stored_in_it() {
    let patched = repaired_c(
        "struct node { struct node *next, *prev; };
struct list { struct node *head, *tail; long length; };

void link(struct list *list, struct node *node) {
    if (node->prev)
        node->prev->next = node; //~ flush
    else
        list->head = node; //~ flush @list
    list->length++; //~ flush @list
}
",
    );
    let expected = "    } else
        list->head = node;
    list->length++;
    crashproof_flush(list, sizeof(*list));
}";
    assert!(patched.contains(expected), "{patched}");
}

#[test]
fn what_a_store_cannot_change_is_named_again() {
    let patched = repaired_c(
        "#include <string.h>

struct pool { struct pool *tables[2]; char log[256]; };
struct index { struct pool **tables; };

static struct pool *pool;
static struct pool *shared;
static struct index db;
struct pool **users(void) { return &shared; }

void f(const char *text, size_t n) {
    memcpy(pool->log, text, n); //~ flush
    pool->tables[1] = 0; //~ flush
    shared->tables[1] = 0; //~ flush
    db.tables[1] = pool; //~ flush
}
",
    );
    assert!(patched.contains("crashproof_flush(pool->log, n);"), "{patched}");
    assert!(
        patched.contains("crashproof_flush(&pool->tables[1], sizeof(pool->tables[1]));"),
        "{patched}"
    );
    // Its address is known elsewhere: the store may be to the variable itself.
    assert!(
        patched.contains("struct pool **slot = &shared->tables[1];"),
        "{patched}"
    );
    assert!(
        patched.contains("crashproof_flush(&db.tables[1], sizeof(db.tables[1]));"),
        "{patched}"
    );
}
