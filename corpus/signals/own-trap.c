// The program's own SIGTRAP handler, for its own int3 and for a raised signal.
#include "../pm.h"
#include <signal.h>

static volatile sig_atomic_t traps;

static void on_trap(int signal) {
    (void)signal;
    traps++;
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    struct sigaction action = {0}, seen;
    action.sa_handler = on_trap;
    sigaction(SIGTRAP, &action, NULL);
    sigaction(SIGTRAP, NULL, &seen);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    __asm__ volatile("int3");
    raise(SIGTRAP);
    pm[8] = (uint64_t)traps; //~ missing-flush
    printf("%d %d\n", (int)traps, seen.sa_handler == on_trap);
    return 0;
}
