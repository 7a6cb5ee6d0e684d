// repair: flush+fence
// All fields of one object, one after the other: one persist is enough.
#include "persist.h"
#include "pool.h"

struct object {
    uint64_t id;
    uint32_t kind;
    uint32_t owner;
    uint64_t created;
};

static void init(struct object *object, uint64_t id) {
    object->id = id;
    object->kind = 4;
    object->owner = 1000;
    object->created = id * 100;
    pm_persist(object, sizeof(*object));
}

int main(int argc, char **argv) {
    struct object *objects = pool_open(argv[argc - 1], 4096);
    init(&objects[0], 1);
    init(&objects[5], 2);
    printf("%lu %u %u\n", (unsigned long)objects[5].created, objects[5].kind, objects[0].owner);
    return 0;
}
