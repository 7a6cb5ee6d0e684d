// Handlers, masks and alternate stacks set by system calls of the program's own are the program's own, and PM works under them.
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

#define RESTORER 0x04000000ul

// Only its address is told to the kernel.
__asm__(".text\n.type restore, @function\nrestore: mov $15, %rax\nsyscall\n.size restore, . - restore\n");
extern void restore(void);

static sigjmp_buf back;
static char stack[64 << 10];
static volatile uint64_t *pm;
static volatile int on_stack;

static void caught(int number) {
    char here;
    on_stack = &here >= stack && &here < stack + sizeof stack;
    pm[8]++;
    pm_persist((void *)&pm[8], 8);
    if (number == SIGSEGV)
        siglongjmp(back, 1);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    struct action set = {caught, SA_ONSTACK | SA_NODEFER | RESTORER, restore, 0}, old;
    stack_t alternate = {stack, 0, sizeof stack}, known;
    printf("%ld", pm_raw(SYS_sigaltstack, (long)&alternate, (long)&known, 0, 0, 0, 0));
    printf(" %d", known.ss_flags);
    printf(" %ld", pm_raw(SYS_rt_sigaction, SIGSEGV, (long)&set, (long)&old, 8, 0, 0));
    printf(" %d", old.handler == (void (*)(int))SIG_DFL);
    printf(" %ld", pm_raw(SYS_rt_sigaction, SIGUSR1, (long)&set, 0, 8, 0, 0));
    printf(" %ld", pm_raw(SYS_rt_sigaction, SIGSEGV, 0, (long)&old, 8, 0, 0));
    printf(" %d", old.handler == caught);
    printf(" %ld", pm_raw(SYS_rt_sigaction, SIGSEGV, 0, 1, 8, 0, 0));
    printf(" %ld\n", pm_raw(SYS_rt_sigaction, SIGSEGV, 0, 0, 7, 0, 0));
    if (sigsetjmp(back, 1) == 0)
        *(volatile int *)8 = 1;
    printf("%d", on_stack);
    unsigned long all = ~0ul, before, during;
    printf(" %ld", pm_raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&before, 8, 0, 0));
    pm[0] = 1;
    pm_persist((void *)pm, 8);
    kill(getpid(), SIGUSR1);
    printf(" %lu", (unsigned long)pm[8]);
    pm_raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, (long)&during, 8, 0, 0);
    printf(" %lx %lx %lu %d\n", before, during & 0xffff, (unsigned long)pm[8], on_stack);
    printf("%ld", pm_raw(SYS_rt_sigprocmask, 17, (long)&all, 0, 8, 0, 0));
    printf(" %ld\n", pm_raw(SYS_rt_sigprocmask, SIG_BLOCK, 1, 0, 8, 0, 0));
    return 0;
}
