// Flushed, and unmapped before the fence.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    munmap((void *)pm, PAGE);
    printf("unmapped\n");
    return 0;
}
