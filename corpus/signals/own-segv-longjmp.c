// The program survives its own null dereference by siglongjmp, amid PM stores.
// build: gcc clang
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;
static int caught;

static void on_segv(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    caught += info->si_addr == (void *)8;
    siglongjmp(back, 1);
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    struct sigaction action = {0};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    for (volatile int i = 0; i < 3; i++) {
        pm[0] = (uint64_t)i;
        pm_persist((void *)&pm[0], 8);
        if (sigsetjmp(back, 1) == 0)
            *(volatile int *volatile)8 = 1;
        pm[8] = (uint64_t)i + 1;
        pm_persist((void *)&pm[8], 8);
    }
    pm[16] = (uint64_t)caught; //~ missing-flush
    printf("caught %d\n", caught);
    return 0;
}
