// The count of references is flushed each time.
#include "../pm.h"

struct object {
    uint64_t references;
    char pad[56];
};

int main(int argc, char **argv) {
    struct object *object = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 4; i++) {
        __atomic_fetch_add(&object->references, 1, __ATOMIC_SEQ_CST);
        pm_persist(&object->references, 8);
        __atomic_fetch_sub(&object->references, 1, __ATOMIC_SEQ_CST);
        pm_persist(&object->references, 8);
    }
    printf("%lu\n", (unsigned long)object->references);
    return 0;
}
