// A server without a handler is ended by SIGTERM; the trace is complete, because the file holds what the log says.
// expect-signal: 15
#include "../pm.h"
#include <signal.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    printf("%d\n", argc > 0);
    fflush(stdout);
    pm[0] = 1;
    pm_persist((void *)pm, 8);
    munmap((void *)pm, PAGE);
    pm = pm_map(argv[argc - 1], PAGE);
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    kill(getpid(), SIGTERM);
    return 0;
}
