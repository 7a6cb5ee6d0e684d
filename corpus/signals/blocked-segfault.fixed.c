// A fault of the program's own while SIGSEGV is blocked ends it, whatever handler it has.
// expect-signal: 11
#include "../pm.h"
#include <signal.h>

static void on_segv(int signal) {
    (void)signal;
    _exit(1);
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    signal(SIGSEGV, on_segv);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    fflush(stdout);
    *(volatile int *volatile)NULL = 1;
    return 0;
}
