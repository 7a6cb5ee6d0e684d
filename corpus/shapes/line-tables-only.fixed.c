// Debug info with nothing but lines.
// cflags: -g1
#include "../pm.h"

static __attribute__((noinline)) void set(volatile uint64_t *at) {
    *at = 7;
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    set(pm);
    pm_persist((void *)pm, 8);
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
