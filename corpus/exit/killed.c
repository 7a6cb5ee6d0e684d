// The process is killed: it cannot compare anything with the log, so the recorder does.
// expect-signal: 9
#include "../pm.h"
#include <signal.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    printf("%d\n", argc > 0);
    fflush(stdout);
    pm[0] = 1; //~ missing-flush
    munmap((void *)pm, PAGE);
    pm = pm_map(argv[argc - 1], PAGE);
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    kill(getpid(), SIGKILL);
    return 0;
}
