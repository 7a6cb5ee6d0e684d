// The program dies of its own SIGSEGV.
// expect-signal: 11
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pm[8] = 2;
    PM_CLWB(&pm[0]);
    PM_CLWB(&pm[8]);
    PM_SFENCE();
    printf("%lu\n", (unsigned long)pm[0]);
    fflush(stdout);
    *(volatile int *volatile)NULL = 1;
    return 0;
}
