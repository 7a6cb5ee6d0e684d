// Every signal is blocked around PM stores; the mask that the program reads back is the one it set.
// build: gcc clang
#include "../pm.h"
#include <signal.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    sigset_t all, old, seen;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    pm[8] = 2;
    PM_CLWB(&pm[8]);
    PM_SFENCE();
    sigprocmask(SIG_SETMASK, &old, &seen);
    printf("%d %d %d\n", sigismember(&seen, SIGSEGV), sigismember(&seen, SIGTRAP), sigismember(&old, SIGSEGV));
    return 0;
}
