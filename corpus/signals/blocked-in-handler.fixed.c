// A handler that blocks every signal stores to PM.
#include "../pm.h"
#include <signal.h>

static volatile uint64_t *pm;

static void on_usr1(int signal) {
    (void)signal;
    pm[0] = 7;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    struct sigaction action = {0};
    action.sa_handler = on_usr1;
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
