// The program's SIGSEGV handler itself stores to PM, then mends the cause and returns.
#include "../pm.h"
#include <signal.h>

static volatile uint64_t *pm;
static char *page;

static void on_segv(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    pm[8]++;
    PM_CLWB(&pm[8]);
    PM_SFENCE();
    if ((char *)info->si_addr < page || (char *)info->si_addr >= page + PAGE)
        _exit(98);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {0};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    ((volatile char *)page)[100] = 1;
    pm[0] = (uint64_t)page[100];
    pm_persist((void *)&pm[0], 8);
    printf("%lu %lu\n", (unsigned long)pm[0], (unsigned long)pm[8]);
    return 0;
}
