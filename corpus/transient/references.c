// References are counted in PM and never flushed. The count returns to its value each time, and is no lock.
#include "../pm.h"

struct object {
    uint64_t references;
    char pad[56];
};

int main(int argc, char **argv) {
    struct object *object = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 4; i++) {
        __atomic_fetch_add(&object->references, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_sub(&object->references, 1, __ATOMIC_SEQ_CST); //~ missing-flush
    }
    printf("%lu\n", (unsigned long)object->references);
    return 0;
}
