// As shared-counter.c, but recovery counts anew.
#include "../app.h"

struct pool {
    _Alignas(LINE) uint64_t total;
    _Alignas(LINE) uint64_t users[4];
    _Alignas(LINE) uint64_t groups[4];
};

static void add(struct pool *pool, uint64_t *entry) {
    *entry = 1;
    pm_persist(entry, sizeof *entry);
    pool->total++;
    pm_persist(&pool->total, sizeof pool->total);
}

static void run(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    add(pool, &pool->users[0]);
    add(pool, &pool->groups[0]);
    add(pool, &pool->users[1]);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    uint64_t count = 0;
    for (int i = 0; i < 4; i++)
        count += pool->users[i] + pool->groups[i];
    pool->total = count;
    pm_persist(&pool->total, sizeof pool->total);
    REQUIRE(pool->total == count, "%lu entries and a total of %lu", count, pool->total);
}

APP(NULL, run, recover, NULL)
