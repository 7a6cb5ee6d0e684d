// repair: subprogram+fence object_init
// The copy of the helper needs copies of what it calls, and memcpy is flushed by range.
#include "persist.h"
#include "pool.h"
#include <string.h>

struct header {
    uint64_t kind;
    uint64_t size;
};

struct object {
    struct header header;
    char name[100];
};

__attribute__((noinline)) static void header_init(struct header *header, uint64_t kind) {
    header->kind = kind; //~ missing-flush
    header->size = sizeof(struct object); //~? missing-flush
}

__attribute__((noinline)) static void object_init(struct object *object, uint64_t kind, const char *name) {
    memcpy(object->name, name, strlen(name) + 1); //~ missing-flush
    header_init(&object->header, kind);
}

int main(int argc, char **argv) {
    struct object *objects = pool_open(argv[argc - 1], 4096);
    struct object templates[3];
    for (int i = 0; i < 3; i++)
        object_init(&templates[i], i, "template");
    object_init(&objects[0], 9, "persistent");
    printf("%lu %s %s\n", (unsigned long)objects[0].header.kind, objects[0].name, templates[2].name);
    return 0;
}
