// The program ignores SIGSEGV and SIGTRAP; its stores and flushes work all the same.
#include "../pm.h"
#include <signal.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGTRAP, SIG_IGN);
    kill(getpid(), SIGSEGV);
    raise(SIGTRAP);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    pm[8] = 2; //~ missing-flush
    printf("%d %lu\n", signal(SIGSEGV, SIG_DFL) == SIG_IGN, (unsigned long)(pm[0] + pm[8]));
    return 0;
}
