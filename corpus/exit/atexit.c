// A handler at exit stores and flushes without a fence.
#include "../pm.h"

static volatile uint64_t *pm;

static void at_exit(void) {
    pm[0] = 3; //~ missing-fence
    PM_CLWB(&pm[0]);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    atexit(at_exit);
    pm[8] = 1;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[8]);
    return 0;
}
