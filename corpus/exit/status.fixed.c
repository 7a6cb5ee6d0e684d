// The exit status is the program's own.
// build: gcc clang
// expect-exit: 42
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    return 42;
}
