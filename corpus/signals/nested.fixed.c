// A handler that is itself interrupted by another one, both storing to PM.
#include "../pm.h"
#include <signal.h>

static volatile uint64_t *pm;

static void on_usr2(int signal) {
    (void)signal;
    pm[8] = 2;
    PM_CLWB(&pm[8]);
    PM_SFENCE();
}

static void on_usr1(int signal) {
    (void)signal;
    pm[0] = 1;
    raise(SIGUSR2);
    PM_CLWB(&pm[0]);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    signal(SIGUSR1, on_usr1);
    signal(SIGUSR2, on_usr2);
    raise(SIGUSR1);
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
