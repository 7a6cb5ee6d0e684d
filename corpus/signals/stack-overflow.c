// The program overflows its stack, and its handler on an alternate stack jumps out.
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>

static sigjmp_buf back;
static volatile uint64_t *pm;

static void on_segv(int signal) {
    pm[8] = 1;
    PM_CLWB(&pm[8]);
    PM_SFENCE();
    siglongjmp(back, signal);
}

static int overflow(volatile char *outer) {
    volatile char frame[4096];
    frame[0] = outer ? outer[0] : 1;
    return overflow(frame) + frame[0];
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    static char stack[65536];
    stack_t mine = {0};
    mine.ss_sp = stack;
    mine.ss_size = sizeof stack;
    sigaltstack(&mine, NULL);
    struct sigaction action = {0};
    action.sa_handler = on_segv;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    int caught = 0;
    for (volatile int i = 0; i < 2; i++)
        if (sigsetjmp(back, 1) == 0)
            overflow(NULL);
        else
            caught++;
    pm[0] = (uint64_t)caught; //~ missing-flush
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
