// A first program: the value is stored, flushed and fenced.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 42;
    pm_persist(value, sizeof *value);
    printf("stored %lu\n", *value);
    return 0;
}
