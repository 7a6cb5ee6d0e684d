//! Functions of both kinds, compiled in every way: those named `yes_…` are helpers, those named `no_…` are not.

use std::process::Command;

use super::ModuleCode;

const SOURCE: &str = r#"
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <stdlib.h>

#define CLWB(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define SFENCE() __asm__ volatile("sfence" : : : "memory")
#define NOINLINE __attribute__((noinline, noclone))

struct pool { uint64_t used, count; char *base; uint64_t words[8]; };
struct node { uint64_t key, value; struct node *next; };
struct pair { uint64_t pool, offset; };
extern uint64_t *global_pm;
extern uint64_t statistics;
void elsewhere(void *);

// Flushes and fences.
NOINLINE void yes_flush_line(const void *at) { CLWB(at); }
NOINLINE void yes_flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        CLWB(line);
}
NOINLINE void yes_drain(void) { SFENCE(); }
NOINLINE void yes_persist(const void *at, size_t len) {
    yes_flush(at, len);
    yes_drain();
}
NOINLINE void yes_counted_flush(const void *at) { statistics++; CLWB(at); }
NOINLINE void yes_recursive_flush(const char *at, size_t lines) {
    if (lines == 0)
        return;
    CLWB(at);
    yes_recursive_flush(at + 64, lines - 1);
    __asm__ volatile("" ::: "memory");
}
NOINLINE void yes_flush_field(struct pool *pool) { CLWB(&pool->count); }
NOINLINE void no_flush_twice(const void *at) { CLWB(at); CLWB(at); }
NOINLINE void no_persist_twice(const void *at, size_t len) { yes_persist(at, len); SFENCE(); }
NOINLINE void no_flush_global(void) { CLWB(global_pm); }
NOINLINE void no_flush_two(struct pool *pool, struct node *node) { CLWB(pool); CLWB(node); }

// Accessors.
NOINLINE void yes_set_word(uint64_t *word, uint64_t value) { *word = value; }
NOINLINE void yes_set_byte(char *at, int index, char value) { at[index] = value; }
NOINLINE void yes_set_field(struct node *node, uint64_t value) { node->value = value; }
NOINLINE void yes_set_pair(struct pair *pair, struct pair value) { *pair = value; }
NOINLINE void yes_assign(struct pair *to, const struct pair *from) { *to = *from; }
NOINLINE void yes_assign_node(struct node *to, const struct node *from) { *to = *from; }
NOINLINE void yes_set_through(struct pool *pool, uint64_t index, char value) { pool->base[index] = value; }
NOINLINE void yes_store_release(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
NOINLINE void yes_store_seq(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }
NOINLINE void yes_double(double *word, double value) { *word = value; }
NOINLINE void yes_calls(struct pool *pool, uint64_t value) { yes_set_word(&pool->words[3], value); }
NOINLINE void yes_set_and_persist(uint64_t *word, uint64_t value) {
    *word = value;
    yes_persist(word, sizeof *word);
}
NOINLINE void no_constant(struct node *node) { node->value = 1; }
NOINLINE void no_calls(struct pool *pool) { yes_set_word(&pool->words[3], 1); }
NOINLINE void no_add(struct pool *pool, uint64_t amount) { pool->count += amount; }
NOINLINE void no_two_fields(struct node *node, struct node *next, uint64_t key) { node->next = next; node->key = key; }
NOINLINE void no_flush_unfenced(uint64_t *word, uint64_t value) { *word = value; CLWB(word); }
NOINLINE void no_flush_sometimes(uint64_t *word, uint64_t value, int dirty) {
    *word = value;
    if (dirty)
        CLWB(word);
    SFENCE();
}
NOINLINE void no_fence_unflushed(uint64_t *word, uint64_t value) { *word = value; SFENCE(); }
NOINLINE void no_wrong_pointer(uint64_t *word, uint64_t *other, uint64_t value) {
    *word = value;
    CLWB(other);
    SFENCE();
}
NOINLINE void no_global(uint64_t value) { *global_pm = value; }
NOINLINE void no_global_index(uint64_t index, uint64_t value) { global_pm[index] = value; }
NOINLINE void no_append(struct pool *pool, uint64_t value) { pool->words[pool->count] = value; }
NOINLINE void no_last(struct node *node, struct node *value) {
    while (node->next)
        node = node->next;
    node->next = value;
}
NOINLINE void no_either(uint64_t *a, uint64_t *b, int first, uint64_t value) { *(first ? a : b) = value; }
NOINLINE void no_unknown(uint64_t *word, uint64_t value) { elsewhere(word); *word = value; }
NOINLINE void no_insert_sorted(uint64_t *keys, uint64_t key) {
    int i = 5;
    for (; i > 0 && (keys[i - 1] == 0 || keys[i - 1] > key); i--)
        keys[i] = keys[i - 1];
    keys[i] = key;
}
NOINLINE void no_insert_first(uint64_t *keys, uint64_t key) {
    for (int i = 0; i < 6; i++)
        if (keys[i] == 0) {
            keys[i] = key;
            return;
        }
}
NOINLINE void yes_fill(uint64_t *at, uint64_t n, uint64_t value) {
    for (uint64_t i = 0; i < n; i++)
        at[i] = value;
}
NOINLINE void no_computed(uint64_t *at, uint64_t value) { *at = value * 3; }
NOINLINE void no_flush_call_sometimes(uint64_t *word, uint64_t value, int dirty) {
    *word = value;
    if (dirty)
        yes_flush(word, 8);
    SFENCE();
}
NOINLINE void no_same_twice(uint64_t *at, uint64_t value) { at[0] = value; at[1] = value; }
NOINLINE void no_square(uint32_t *at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        at[i] = i * i;
}
NOINLINE void no_recursive_build(struct node *node, uint64_t depth) {
    if (depth == 0)
        return;
    node->key = depth;
    no_recursive_build(node->next, depth - 1);
    __asm__ volatile("" ::: "memory");
}

// Copies.
NOINLINE void yes_copy(char *to, const char *from, size_t len) {
    for (size_t i = 0; i < len; i++)
        to[i] = from[i];
}
NOINLINE void yes_copy_string(char *to, const char *from) {
    while ((*to++ = *from++))
        ;
}
NOINLINE void yes_memcpy(void *to, const void *from, size_t len) { memcpy(to, from, len); }
NOINLINE void yes_memcpy_persist(void *to, const void *from, size_t len) {
    memcpy(to, from, len);
    yes_persist(to, len);
}
NOINLINE void yes_memset(void *to, int byte, size_t len) { memset(to, byte, len); }
NOINLINE void yes_zero(void *to, size_t len) { memset(to, 0, len); }
NOINLINE void yes_nontemporal(long long *to, long long value) {
    __asm__ volatile("movnti %1, %0" : "=m"(*to) : "r"(value) : "memory");
}
NOINLINE void no_memcpy_local(char *to, size_t len) {
    char local[64];
    for (size_t i = 0; i < sizeof local; i++)
        local[i] = (char)(i * 3);
    __asm__ volatile("" : : "r"(local) : "memory");
    memcpy(to, local, sizeof local);
}
NOINLINE void no_swap(uint64_t *a, uint64_t *b) {
    uint64_t old = *a;
    *a = *b;
    *b = old;
}

// Allocators.
NOINLINE void *yes_allocate(struct pool *pool, size_t size) {
    char *at = (char *)pool + pool->used;
    pool->used += size;
    return at;
}
NOINLINE uint64_t *yes_allocate_word(struct pool *pool) { return &pool->words[pool->used++]; }
NOINLINE uint64_t no_next_number(struct pool *pool) { return pool->used++; }
NOINLINE void *no_allocate_global(size_t size) {
    char *at = (char *)global_pm + *global_pm;
    *global_pm += size;
    return at;
}
"#;

fn build(compiler: &str, level: &str, source: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("code.c"), directory.path().join("code.so"));
    std::fs::write(&from, source).unwrap();
    let status = Command::new(compiler)
        .args([level, "-g", "-shared", "-fPIC", "-w", "-o"])
        .args([&to, &from])
        .status()
        .unwrap();
    assert!(status.success(), "{compiler} {level}");
    (directory, to)
}

#[test]
fn functions_of_both_kinds() {
    let mut wrong = Vec::new();
    for compiler in ["gcc", "clang-19"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let (_directory, module) = build(compiler, level, SOURCE);
            let code = ModuleCode::read(&module, Some(&module)).unwrap();
            for (range, name) in code.symbols.all() {
                let expected = match name.split_once('_') {
                    Some(("yes", _)) => true,
                    Some(("no", _)) => false,
                    _ => continue,
                };
                if code.is_helper(range.start) != expected {
                    wrong.push(format!("{compiler} {level} {name}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The function that is inlined into `in_yes_…` is a helper, the one in `in_no_…` is not.
const INLINED: &str = r#"
#include <stdint.h>
#include <stddef.h>

#define CLWB(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define SFENCE() __asm__ volatile("sfence" : : : "memory")
#define NOINLINE __attribute__((noinline, noclone))
#define INLINE __attribute__((always_inline)) static inline

struct pool { uint64_t used, count; char *base; volatile uint64_t words[8]; };
extern struct pool *global_pm;

INLINE void flush_line(const volatile void *at) { CLWB(at); }
INLINE void drain(void) { SFENCE(); }
INLINE void flush(const volatile void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        CLWB(line);
}
INLINE void set(volatile uint64_t *word, uint64_t value) { *word = value; }
INLINE void set_word(struct pool *pool, uint64_t value) { pool->words[2] = value; }
INLINE void set_global(uint64_t value) { global_pm->words[3] = value; }
INLINE void add(struct pool *pool, uint64_t value) { pool->words[0] += value; }
INLINE void mark(struct pool *pool) { pool->words[0] = 1; }
INLINE void unfinished(volatile uint64_t *word, uint64_t value) { *word = value; CLWB(word); }

NOINLINE void in_yes_flush_line(struct pool *pool) { pool->count++; flush_line(&pool->count); SFENCE(); }
NOINLINE void in_yes_drain(struct pool *pool) { pool->count++; CLWB(pool); drain(); }
NOINLINE void in_yes_flush(struct pool *pool) { pool->count++; flush(pool->words, sizeof pool->words); SFENCE(); }
NOINLINE void in_yes_set(struct pool *pool, uint64_t value) { pool->count++; set(&pool->words[1], value * 3); }
NOINLINE void in_yes_set_constant(struct pool *pool) { pool->count++; set(&pool->words[1], 5); }
NOINLINE void in_yes_set_word(struct pool *pool, uint64_t value) { pool->count++; set_word(pool, value); }
NOINLINE void in_no_set_global(uint64_t value) { global_pm->words[0] = 1; set_global(value); }
NOINLINE void in_no_add(struct pool *pool, uint64_t value) { pool->count = 2; add(pool, value); }
NOINLINE void in_no_mark(struct pool *pool) { pool->count = 1; mark(pool); }
NOINLINE void in_no_unfinished(struct pool *pool) { pool->count++; unfinished(&pool->words[3], 8); SFENCE(); }
"#;

#[test]
fn inlined_functions_of_both_kinds() {
    let mut wrong = Vec::new();
    let mut undecided = Vec::new();
    for compiler in ["gcc", "clang-19"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let (_directory, module) = build(compiler, level, INLINED);
            let code = ModuleCode::read(&module, Some(&module)).unwrap();
            for (range, name) in code.symbols.all() {
                let expected = match name {
                    _ if name.starts_with("in_yes_") => true,
                    _ if name.starts_with("in_no_") => false,
                    _ => continue,
                };
                let followed = code.followed(range.start).unwrap();
                let mut inlined = 0;
                for effect in &followed.effects {
                    let instances = code.inlined_at(effect.at);
                    if instances.is_empty() {
                        continue;
                    }
                    inlined += 1;
                    let found = code.helpers(effect.at, instances.len() + 1)[0];
                    if found && !expected {
                        wrong.push(format!("{compiler} {level} {name} at {:#x}", effect.at));
                    }
                    if expected && !found {
                        undecided.push(format!("{compiler} {level} {name} at {:#x}", effect.at));
                    }
                }
                if inlined == 0 {
                    wrong.push(format!("{compiler} {level} {name}: nothing was inlined"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(undecided.is_empty(), "{undecided:#?}");
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}

/// A function that stores or flushes what it is told to, and maybe one more thing, which makes it no helper.
fn random_function(number: usize, random: &mut Random) -> String {
    let ty = random.pick(&["uint64_t", "uint32_t", "uint16_t", "uint8_t", "double"]);
    let place = random.pick(&[
        "*(T *)p",
        "p->tail",
        "((T *)p)[index]",
        "((T *)p->base)[index]",
        "((T *)p->base)[3]",
    ]);
    let (body, stores) = match random.below(6) {
        0 => (format!("{place} = value;"), true),
        1 => (format!("{place} = *from;"), true),
        2 => (format!("{place} = value; flush(&{place}, sizeof(T)); SFENCE();"), true),
        3 => (format!("CLWB(&{place});"), false),
        4 => (format!("flush(&{place}, len); SFENCE();"), false),
        _ => (
            "for (size_t i = 0; i < len; i++) ((T *)p)[i] = from[i];".to_owned(),
            true,
        ),
    };
    let also = [
        "",
        "",
        "statistics++;",
        "if (len == 0) abort();",
        "other->words[1] = index;",
        "global_pm->words[2] = index;",
        "elsewhere(from);",
        "p->words[p->used & 7] = index;",
        "while (other->next) other = other->next; other->used = index;",
        "CLWB(other);",
    ];
    let chosen = random.below(also.len());
    let is_helper = chosen < 4;
    let first = random.below(2) == 0;
    // Behind what flushes, a store would be another mistake; before it, too, it is one more place.
    let body = match first {
        true => format!("{} {body}", also[chosen]),
        false => format!("{body} {}", also[chosen]),
    };
    let name = if is_helper { "yes" } else { "no" };
    let from = if stores { "const T *from" } else { "T *from" };
    format!(
        "#define T {ty}\nNOINLINE void {name}_{number}(struct object *p, size_t index, T value, {from}, size_t len, struct object *other) \
         {{ {} }}\n#undef T\n",
        body.replace("p->tail", "p->TAIL")
            .replace("TAIL", &format!("tail_{ty}"))
    )
}

const RANDOM: &str = r#"
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>

#define CLWB(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define SFENCE() __asm__ volatile("sfence" : : : "memory")
#define NOINLINE __attribute__((noinline, noclone))

struct object {
    uint64_t used;
    char *base;
    uint64_t words[8];
    struct object *next;
    uint64_t tail_uint64_t; uint32_t tail_uint32_t; uint16_t tail_uint16_t; uint8_t tail_uint8_t; double tail_double;
};
extern struct object *global_pm;
extern uint64_t statistics;
void elsewhere(const void *);

static inline void flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        CLWB(line);
}
"#;

/// Every compiler's code of a random function is judged as the function was made.
#[test]
fn random_functions() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let functions: String = (0..150).map(|number| random_function(number, &mut random)).collect();
    let source = RANDOM.to_owned() + &functions;
    let mut wrong = Vec::new();
    for compiler in ["gcc", "clang-19"] {
        for level in ["-O0", "-O1", "-O2"] {
            let (_directory, module) = build(compiler, level, &source);
            let code = ModuleCode::read(&module, Some(&module)).unwrap();
            for (range, name) in code.symbols.all() {
                if let Some((expected @ ("yes" | "no"), number)) = name.split_once('_')
                    // Without what the compiler moved out of it.
                    && number.parse::<usize>().is_ok()
                    && code.is_helper(range.start) != (expected == "yes")
                {
                    let line = functions
                        .lines()
                        .find(|line| line.contains(&format!(" {expected}_{number}(")));
                    wrong.push(format!("{compiler} {level} {}", line.unwrap_or_default()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
