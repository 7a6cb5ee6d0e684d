// The handler steps over the faulting instruction by changing the saved instruction pointer.
#include "../pm.h"
#include <signal.h>
#include <ucontext.h>

static volatile uint64_t *pm;

static void on_segv(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *saved = context;
    saved->uc_mcontext.gregs[REG_RIP] += 3;
    saved->uc_mcontext.gregs[REG_RAX] = 55;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    struct sigaction action = {0};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    uint64_t value = 1;
    __asm__ volatile("movq (%1), %0" : "+a"(value) : "d"(16L));
    pm[0] = value;
    pm_persist((void *)&pm[0], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
