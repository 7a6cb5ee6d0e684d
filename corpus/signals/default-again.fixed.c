// The SIGSEGV handler resets itself: the second fault is the end.
// expect-signal: 11
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;

static void on_segv(int signal) {
    siglongjmp(back, signal);
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    struct sigaction action = {0};
    action.sa_handler = on_segv;
    action.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGSEGV, &action, NULL);
    if (sigsetjmp(back, 1) == 0)
        *(volatile int *volatile)NULL = 1;
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    fflush(stdout);
    *(volatile int *volatile)NULL = 1;
    return 0;
}
