// A whole object is flushed although only its first line was touched.
// build: gcc clang
#include "../pm.h"

struct object {
    volatile uint64_t header;
    char pad[56];
    volatile uint64_t payload[24];
};

int main(int argc, char **argv) {
    struct object *object = pm_map(argv[argc - 1], PAGE);
    object->header = 1;
    for (size_t i = 0; i < sizeof *object; i += LINE)
        PM_CLWB((char *)object + i); //~ flush-unmodified x3
    PM_SFENCE();
    printf("%lu\n", (unsigned long)object->header);
    return 0;
}
