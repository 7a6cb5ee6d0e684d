// Every way to block the signals that the runtime needs.
#include "pm.h"
#include <sys/syscall.h>
#include <ucontext.h>

static sigset_t now(void) {
    sigset_t set;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
    return set;
}

static int exactly(unsigned long signals) {
    sigset_t set = now();
    for (int s = 1; s < 65; s++)
        if (sigismember(&set, s) != (int)(signals >> (s - 1) & 1)) return 0;
    return 1;
}

#define BIT(s) (1ul << ((s) - 1))
#define ALL (~0ul & ~BIT(SIGKILL) & ~BIT(SIGSTOP) & ~BIT(32) & ~BIT(33))

static ucontext_t here, there;
static char stack[65536];

static void coroutine(void) {
    store();
    CHECK(exactly(BIT(SIGUSR1) | BIT(SIGSEGV)));
    swapcontext(&there, &here);
}

int main(void) {
    map_pm();
    sigset_t set, old;

    sigfillset(&set);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0 && !sigismember(&old, SIGSEGV));
    store();
    CHECK(exactly(ALL));

    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_SETMASK, &set, &old) == 0 && sigismember(&old, SIGSEGV) && sigismember(&old, SIGTRAP));
    store();
    CHECK(exactly(BIT(SIGBUS) | BIT(SIGUSR1)));

    sigaddset(&set, SIGSEGV);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    store();
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0 && exactly(BIT(SIGSEGV) | BIT(SIGUSR1)));

    // A coroutine inherits the mask, and so does whoever comes back from it.
    CHECK(getcontext(&there) == 0);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    sigaddset(&there.uc_sigmask, SIGSEGV);
    makecontext(&there, coroutine, 0);
    CHECK(swapcontext(&here, &there) == 0);
    CHECK(exactly(BIT(SIGSEGV) | BIT(SIGUSR1)));
    store();
    CHECK(sigsetmask(0) == (int)(BIT(SIGSEGV) | BIT(SIGUSR1)));

    CHECK(sigblock(BIT(SIGSEGV) | BIT(SIGTRAP)) == 0);
    store();
    CHECK(siggetmask() == (int)(BIT(SIGSEGV) | BIT(SIGTRAP)));
    CHECK(sigsetmask(0) == (int)(BIT(SIGSEGV) | BIT(SIGTRAP)) && exactly(0));

    CHECK(sighold(SIGSEGV) == 0 && exactly(BIT(SIGSEGV)));
    store();
    CHECK(sigrelse(SIGSEGV) == 0 && exactly(0));

    CHECK(sigset(SIGBUS, SIG_HOLD) == SIG_DFL && exactly(BIT(SIGBUS)));
    store();
    CHECK(sigset(SIGBUS, SIG_DFL) == SIG_HOLD && exactly(0));

    unsigned long raw = ~0ul, raw_old = 1;
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &raw, &raw_old, 8) == 0 && raw_old == 0);
    store();
    raw = 0;
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &raw, NULL, 8) == 0 && exactly(0));

    // SIGSTKFLT is a signal like any other to the program.
    CHECK(sighold(SIGSTKFLT) == 0 && exactly(BIT(SIGSTKFLT)));
    CHECK(sighold(SIGSEGV) == 0 && exactly(BIT(SIGSTKFLT) | BIT(SIGSEGV)));
    CHECK(sigrelse(SIGSTKFLT) == 0 && exactly(BIT(SIGSEGV)));
    CHECK(sigrelse(SIGSEGV) == 0 && exactly(0));

    // A saved mask comes back with the jump.
    sigjmp_buf jump;
    sighold(SIGSEGV);
    if (!sigsetjmp(jump, 1)) {
        sigsetmask(0);
        siglongjmp(jump, 1);
    }
    sigset_t back = now();
    CHECK(!sigismember(&back, SIGUSR1));
    sigsetmask(0);

    // The old mask may be written to PM itself.
    sigset_t *in_pm = (sigset_t *)(pm + 256);
    sighold(SIGTRAP);
    CHECK(sigprocmask(SIG_BLOCK, NULL, in_pm) == 0 && sigismember(in_pm, SIGTRAP) && !sigismember(in_pm, SIGSEGV));
    sigrelse(SIGTRAP);

    sigfillset(&set);
    CHECK(sigprocmask(77, &set, NULL) == -1 && errno == EINVAL);
    CHECK(pthread_sigmask(77, &set, NULL) == EINVAL);
    puts("done");
    return 0;
}
