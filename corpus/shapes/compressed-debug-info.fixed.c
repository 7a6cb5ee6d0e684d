// Debug info that is compressed.
// cflags: -gz
#include "../pm.h"

static inline __attribute__((always_inline)) void set(volatile uint64_t *at) {
    *at = 5;
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    set(pm);
    pm_persist((void *)pm, 8);
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
