// An allocator that leaves it to its callers to persist what it took: one of them does not.
// build: gcc clang
// flags: -O0 -O2
#include "../pm.h"

struct pool {
    volatile uint64_t used;
    char pad[LINE - sizeof(uint64_t)];
};

__attribute__((noinline)) static void *take(struct pool *pool, size_t size) {
    char *at = (char *)pool + pool->used;
    pool->used += size;
    return at;
}

__attribute__((noinline)) static uint64_t *make(struct pool *pool) {
    uint64_t *word = take(pool, LINE);
    pm_persist(pool, sizeof *pool);
    *word = 5;
    pm_persist(word, sizeof *word);
    return word;
}

int main(int argc, char **argv) {
    struct pool *pool = pm_map(argv[argc - 1], PAGE);
    pool->used = sizeof *pool;
    pm_persist(pool, sizeof *pool);
    printf("%lu\n", (unsigned long)*make(pool));
    return 0;
}
