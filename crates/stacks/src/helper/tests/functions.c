// Functions of both kinds: those named `yes_…` are helpers, those named `no_…` are not.

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
