// As magic.c, but the pool is initialised and persistent when the magic number is written.
#include "../app.h"

#define MAGIC 0x6b6f6f6270616e6dull

struct pool {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t capacity;
    _Alignas(LINE) uint64_t slots[8];
};

static void create(struct pool *pool) {
    pool->capacity = 8;
    pm_persist(&pool->capacity, sizeof pool->capacity);
    pool->magic = MAGIC;
    pm_persist(pool, sizeof *pool);
}

static void run(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    if (pool->magic != MAGIC)
        create(pool);
    pool->slots[0] = 7;
    pm_persist(&pool->slots[0], sizeof pool->slots[0]);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    if (pool->magic != MAGIC)
        return; // never made; the next run makes it
    REQUIRE(pool->capacity == 8, "a pool with a capacity of %lu", pool->capacity);
    for (uint64_t i = 0; i < pool->capacity; i++)
        REQUIRE(pool->slots[i] == 0 || pool->slots[i] == 7, "slot %lu holds %lu", i, pool->slots[i]);
}

APP(NULL, run, recover, NULL)
