// setup: yes
// As torn-pointer.c, but pointer and generation share eight bytes.
#include "../app.h"

struct object {
    uint64_t generation;
    char content[LINE - 8];
};

#define POINTER(index, generation) ((uint64_t)(generation) << 48 | (index))

struct pool {
    _Alignas(LINE) uint64_t root;
    _Alignas(LINE) struct object objects[4];
};

static void replace_root(struct pool *pool, uint64_t index, uint64_t generation) {
    struct object *object = &pool->objects[index];
    object->generation = generation;
    pm_persist(object, sizeof *object);
    pool->root = POINTER(index, generation);
    pm_persist(&pool->root, sizeof pool->root);
}

static void setup(const char *path) {
    replace_root((struct pool *)pm_map(path, PAGE), 0, 1);
}

static void run(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    replace_root(pool, 1, 2);
    replace_root(pool, 2, 3);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    uint64_t index = pool->root & 0xffffffffffff, generation = pool->root >> 48;
    REQUIRE(index < 4, "root points to object %lu", index);
    REQUIRE(pool->objects[index].generation == generation, "root has generation %lu, its object %lu", generation,
            pool->objects[index].generation);
}

APP(setup, run, recover, NULL)
