// The program's own handlers for the signals that the runtime uses.
#include "pm.h"
#include <ucontext.h>

static sigjmp_buf jump;
static void *volatile address;
static volatile int calls;
static int target;

static void leave(int signal, siginfo_t *info, void *context) {
    calls++;
    address = info->si_addr;
    store();
    siglongjmp(jump, 1);
}

// Sends the store that faulted to `target`.
static void mend(int signal, siginfo_t *info, void *context) {
    calls++;
    CHECK(info->si_signo == SIGSEGV && info->si_code == SEGV_MAPERR);
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    CHECK(sigismember(&set, SIGSEGV));
    store();
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = (long)&target;
}

static void fault_at_depth(int n) {
    volatile char room[200];
    room[0] = n;
    if (n) fault_at_depth(n - 1);
    else *(volatile int *)0x1234 = 1;
    room[1] = room[0];
}

static void faults(int count) {
    int before = calls;
    for (volatile int i = 0; i < count; i++) {
        if (!sigsetjmp(jump, 1)) {
            fault_at_depth(i % 7);
            CHECK(0);
        }
        CHECK(address == (void *)0x1234);
        store();
    }
    CHECK(calls == before + count);
}

static volatile int counted;

static void count(int signal) {
    counted++;
    store();
}

int main(void) {
    map_pm();
    struct sigaction action = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO}, known;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGSEGV, &action, &known) == 0 && known.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGSEGV, NULL, &known) == 0 && known.sa_sigaction == leave);
    CHECK((known.sa_flags & SA_SIGINFO) && sigismember(&known.sa_mask, SIGSEGV));
    faults(50);
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    CHECK(!sigismember(&set, SIGSEGV) && !sigismember(&set, SIGINT));

    // With others of the runtime's signals blocked.
    sigfillset(&set);
    sigdelset(&set, SIGSEGV);
    sigprocmask(SIG_SETMASK, &set, NULL);
    faults(20);
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);

    // On an alternate stack.
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    faults(20);

    // Return to a changed context, with the vector registers as they were.
    action.sa_sigaction = mend;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < 10; i++) {
        double before = 3.25 + i, after = 0;
        target = 0;
        __asm__ volatile("movsd %1, %%xmm7\n mov $0x10, %%eax\n movl $77, (%%rax)\n movsd %%xmm7, %0"
                         : "=m"(after)
                         : "m"(before)
                         : "rax", "xmm7", "memory");
        CHECK(after == before && target == 77);
    }

    // Breakpoints of the program's own, and signals that someone sends.
    CHECK(signal(SIGTRAP, count) == SIG_DFL);
    __asm__ volatile("int3");
    __asm__ volatile("int3");
    CHECK(counted == 2);
    signal(SIGSEGV, SIG_IGN);
    raise(SIGSEGV);
    signal(SIGBUS, count);
    sighold(SIGBUS);
    raise(SIGBUS);
    CHECK(counted == 2 && sigpending(&set) == 0 && sigismember(&set, SIGBUS) && !sigismember(&set, SIGSTKFLT));
    store();
    sigrelse(SIGBUS);
    CHECK(counted == 3);
    puts("done");
    return 0;
}
