// The program has an alternate stack of its own, and its handler on it stores to PM.
#include "../pm.h"
#include <signal.h>

static volatile uint64_t *pm;
static char *stack;
static volatile int on_it;

static void on_usr1(int signal) {
    char here;
    (void)signal;
    on_it = (uintptr_t)&here >= (uintptr_t)stack && (uintptr_t)&here < (uintptr_t)stack + 65536;
    pm[8] = 8;
    PM_CLWB(&pm[8]);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    stack = malloc(65536);
    stack_t mine = {0}, seen;
    mine.ss_sp = stack;
    mine.ss_size = 65536;
    sigaltstack(&mine, NULL);
    sigaltstack(NULL, &seen);
    struct sigaction action = {0};
    action.sa_handler = on_usr1;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    raise(SIGUSR1);
    printf("%d %d %lu\n", on_it, seen.ss_sp == stack, (unsigned long)(pm[0] + pm[8]));
    return 0;
}
