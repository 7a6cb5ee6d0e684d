// The program write-protects a PM page itself and takes the fault of its first store, as a write tracker does.
#include "../pm.h"
#include <signal.h>

static char *pm;
static volatile int faults;

static void on_segv(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
    if (page != (uintptr_t)pm + PAGE || faults++)
        _exit(98);
    mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], 2 * PAGE);
    struct sigaction action = {0};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    mprotect(pm + PAGE, PAGE, PROT_READ);
    ((volatile char *)pm)[PAGE + 10] = 1;
    ((volatile char *)pm)[PAGE + 70] = 2;
    pm_persist(pm + PAGE, 128);
    printf("%d %d\n", faults, pm[PAGE + 10] + pm[PAGE + 70]);
    return 0;
}
