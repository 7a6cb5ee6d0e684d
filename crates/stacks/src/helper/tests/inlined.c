// The function that is inlined into `in_yes_…` is a helper, the one in `in_no_…` is not.

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
