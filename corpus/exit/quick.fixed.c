// quick_exit runs its own handlers.
// expect-exit: 7
#include "../pm.h"

static volatile uint64_t *pm;

static void at_quick_exit_handler(void) {
    pm[0] = 2;
    pm_persist((void *)&pm[0], 8);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    at_quick_exit(at_quick_exit_handler);
    printf("%lu\n", (unsigned long)pm[0]);
    fflush(stdout);
    quick_exit(7);
}
