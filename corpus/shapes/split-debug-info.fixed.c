// Debug info that is split off into a file beside the program.
// cflags: -gsplit-dwarf
#include "../pm.h"

static inline __attribute__((always_inline)) void set(volatile uint64_t *at) {
    *at = 6;
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    set(pm);
    pm_persist((void *)pm, 8);
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
