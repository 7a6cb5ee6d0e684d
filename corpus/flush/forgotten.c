// A first program: the value is stored and never flushed.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 42; //~ missing-flush x1
    printf("stored %lu\n", *value);
    return 0;
}
