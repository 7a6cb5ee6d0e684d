// Debug info that is split off into a file beside the program.
// cflags: -gsplit-dwarf
#include "../pm.h"

static inline __attribute__((always_inline)) void set(volatile uint64_t *at) {
    *at = 6; //~ missing-flush
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    set(pm);
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
