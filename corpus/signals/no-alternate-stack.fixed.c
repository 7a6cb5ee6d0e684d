// A program that has no alternate stack is told so, and its handlers run on the ordinary one.
#include "../pm.h"
#include <signal.h>

static volatile uint64_t *pm;
static char *outer;
static volatile int near;

static void on_usr1(int signal) {
    char here;
    (void)signal;
    near = (uintptr_t)outer - (uintptr_t)&here < 100000;
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    char here;
    outer = &here;
    pm = pm_map(argv[argc - 1], PAGE);
    stack_t seen;
    sigaltstack(NULL, &seen);
    struct sigaction action = {0};
    action.sa_handler = on_usr1;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("%d %d\n", seen.ss_flags == SS_DISABLE, near);
    return 0;
}
