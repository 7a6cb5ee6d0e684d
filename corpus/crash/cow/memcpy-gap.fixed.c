// setup: yes
// As memcpy-gap.c, but every line of the object is flushed.
#include "../app.h"

struct object {
    _Alignas(LINE) uint64_t words[3 * LINE / 8];
};

struct pool {
    _Alignas(LINE) uint64_t current;
    struct object versions[2];
};

static void replace(struct pool *pool, uint64_t version) {
    struct object object, *target = &pool->versions[version % 2];
    for (int i = 0; i < 3 * LINE / 8; i++)
        object.words[i] = version;
    memcpy(target, &object, sizeof object);
    pm_persist(target, sizeof *target);
    pool->current = version;
    pm_persist(&pool->current, sizeof pool->current);
}

static void setup(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    replace(pool, 2);
    pm_persist(pool, sizeof *pool);
}

static void run(const char *path) {
    replace((struct pool *)pm_map(path, PAGE), 3);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    struct object *object = &pool->versions[pool->current % 2];
    for (int i = 0; i < 3 * LINE / 8; i++)
        REQUIRE(object->words[i] == pool->current, "word %d of version %lu is of version %lu", i, pool->current,
                object->words[i]);
}

APP(setup, run, recover, NULL)
