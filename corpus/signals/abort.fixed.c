// The program aborts after its store.
// build: gcc clang
// expect-signal: 6
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    fflush(stdout);
    abort();
}
