// crash: --from append
// brute-force: no, it would crash the creation of the pool too
// As from.c, but an entry is persistent before it is counted.
#include "../app.h"

struct pool {
    _Alignas(LINE) uint64_t made;
    _Alignas(LINE) uint64_t capacity;
    _Alignas(LINE) uint64_t count;
    _Alignas(LINE) uint64_t entries[8];
};

static void create(struct pool *pool) {
    pool->made = 1;
    pm_persist(&pool->made, sizeof pool->made);
    pool->capacity = 8;
    pm_persist(&pool->capacity, sizeof pool->capacity);
}

__attribute__((noinline)) static void append(struct pool *pool, uint64_t value) {
    uint64_t count = pool->count;
    pool->entries[count] = value;
    pm_flush(&pool->entries[count], sizeof value);
    PM_SFENCE();
    pool->count = count + 1;
    pm_persist(&pool->count, sizeof pool->count);
}

static void run(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    create(pool);
    append(pool, 1);
    append(pool, 2);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    if (!pool->made)
        return;
    REQUIRE(pool->capacity == 8 && pool->count <= 8, "%lu of %lu entries", pool->count, pool->capacity);
    for (uint64_t i = 0; i < pool->count; i++)
        REQUIRE(pool->entries[i] == i + 1, "entry %lu is %lu", i, pool->entries[i]);
}

APP(NULL, run, recover, NULL)
