// setup: yes
// A pointer with its generation is 16 bytes, stored by one instruction: eight bytes persist at once, not sixteen.
#include "../app.h"

struct object {
    uint64_t generation;
    char content[LINE - 8];
};

struct pointer {
    uint64_t index, generation;
};

struct pool {
    _Alignas(LINE) struct pointer root;
    _Alignas(LINE) struct object objects[4];
};

#define STORE_16(p, value) __asm__ volatile("movups %1, %0" : "=m"(*(p)) : "x"(value) : "memory")
typedef uint64_t words __attribute__((vector_size(16)));

static void replace_root(struct pool *pool, uint64_t index, uint64_t generation) {
    struct object *object = &pool->objects[index];
    object->generation = generation;
    pm_persist(object, sizeof *object);
    words pointer = {index, generation};
    STORE_16(&pool->root, pointer); //~ crash-atomicity //~ persisted
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
    uint64_t index = pool->root.index, generation = pool->root.generation;
    REQUIRE(index < 4, "root points to object %lu", index);
    REQUIRE(pool->objects[index].generation == generation, "root has generation %lu, its object %lu", generation,
            pool->objects[index].generation);
}

APP(setup, run, recover, NULL)
