// repair: flush+fence
// The macro stores; its other use is on volatile data and must not change.
#include "persist.h"
#include "pool.h"

#define SET(object, field, to) ((object)->field = (to))

struct object {
    uint64_t id;
    char pad[56];
    uint64_t owner;
};

static void own(struct object *object, uint64_t owner) {
    SET(object, owner, owner);
}

static uint64_t scratch(void) {
    struct object object;
    SET(&object, owner, 3);
    return object.owner;
}

int main(int argc, char **argv) {
    struct object *object = pool_open(argv[argc - 1], 4096);
    own(object, 12); //~ missing-flush
    printf("%lu %lu\n", (unsigned long)object->owner, (unsigned long)scratch());
    return 0;
}
