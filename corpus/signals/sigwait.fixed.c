// Blocked signals are waited for, SIGSEGV and SIGTRAP among them.
#include "../pm.h"
#include <signal.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigaddset(&set, SIGTRAP);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int got[3];
    int sent[] = {SIGUSR1, SIGSEGV, SIGTRAP};
    for (int i = 0; i < 3; i++) {
        kill(getpid(), sent[i]);
        pm[0] = (uint64_t)i;
        pm_persist((void *)&pm[0], 8);
        sigpending(&pending);
        if (!sigismember(&pending, sent[i]))
            printf("not pending: %d\n", sent[i]);
        sigwait(&set, &got[i]);
    }
    pm[8] = (uint64_t)got[1];
    pm_persist((void *)&pm[8], 8);
    printf("%d %d %d\n", got[0], got[1], got[2]);
    return 0;
}
