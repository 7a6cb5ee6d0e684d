// repair: subprogram+fence set
// The call that becomes a persistent one is the condition of an if.
#include "persist.h"
#include "pool.h"

__attribute__((noinline)) static int set(uint64_t *cell, uint64_t value) {
    if (*cell == value)
        return 0;
    *cell = value;
    return 1;
}

int main(int argc, char **argv) {
    uint64_t *pm = pool_open(argv[argc - 1], 4096);
    uint64_t local[2] = {0, 0};
    set(&local[0], 1);
    set(&local[1], 2);
    set(&local[1], 3);
    if (set(pm, 4)) //~ missing-flush
        printf("changed\n");
    printf("%lu %lu\n", (unsigned long)local[1], (unsigned long)*pm);
    return 0;
}
