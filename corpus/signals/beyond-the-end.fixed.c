// A store that begins in PM and ends where nothing is mapped faults, and stores nothing.
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;
static char *fault;

static void on_segv(int signal, siginfo_t *info, void *context) {
    (void)context;
    fault = info->si_addr;
    siglongjmp(back, signal);
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    struct sigaction action = {0};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    munmap(pm + PAGE, PAGE);
    int caught = sigsetjmp(back, 1);
    if (caught == 0)
        __asm__ volatile("movq %0, -4(%1)" : : "r"(-1L), "r"(pm + PAGE) : "memory");
    pm[0] = 1;
    pm_persist(pm, 1);
    printf("%d %ld\n", caught, (long)(fault - pm));
    pm_print("nothing", pm + PAGE - 8, 8);
    return 0;
}
