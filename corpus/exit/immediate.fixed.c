// _exit leaves at once.
// expect-exit: 5
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    printf("%d\n", argc > 0);
    fflush(stdout);
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    _exit(5);
}
