// Handlers of signals that are none of the runtime's: they store to PM, under any mask and on any stack.
#include "pm.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile int calls;
static char *volatile stack_pointer;

static void handler(int signal) {
    char here;
    stack_pointer = &here;
    calls++;
    store();
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    CHECK(sigismember(&set, SIGHUP) && sigismember(&set, signal));
}

static void waiting(void) {
    sigset_t most, only, old;
    sigfillset(&most);
    sigdelset(&most, SIGUSR1);
    sigemptyset(&only);
    sigaddset(&only, SIGUSR1);
    sigprocmask(SIG_BLOCK, &only, &old);
    int epoll = epoll_create1(0);
    struct epoll_event event;
    int before = calls;
    for (int way = 0; way < 5; way++) {
        raise(SIGUSR1);
        CHECK(calls == before + way);
        int result = way == 0   ? sigsuspend(&most)
                     : way == 1 ? ppoll(NULL, 0, NULL, &most)
                     : way == 2 ? pselect(0, NULL, NULL, NULL, NULL, &most)
                     : way == 3 ? epoll_pwait(epoll, &event, 1, -1, &most)
                                : epoll_pwait2(epoll, &event, 1, NULL, &most);
        CHECK(result == -1 && errno == EINTR && calls == before + way + 1);
        store();
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void alternate_stack(void) {
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, old;
    CHECK(sigaltstack(&stack, &old) == 0 && old.ss_flags == SS_DISABLE);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == alternate && old.ss_flags == 0 && old.ss_size == sizeof alternate);

    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART}, known;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGUSR1, &action, &known) == 0 && known.sa_handler == handler && !(known.sa_flags & SA_ONSTACK));
    raise(SIGUSR1);
    CHECK(stack_pointer > alternate && stack_pointer < alternate + sizeof alternate);
    CHECK(sigaction(SIGUSR1, NULL, &known) == 0 && known.sa_handler == handler);
    CHECK((known.sa_flags & SA_ONSTACK) && !(known.sa_flags & SA_SIGINFO) && sigismember(&known.sa_mask, SIGBUS));
    CHECK(signal(SIGUSR1, SIG_DFL) == handler && signal(SIGUSR1, SIG_IGN) == SIG_DFL);

    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    stack.ss_flags = 0;
    stack.ss_size = 100;
    CHECK(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM);
}

static char order[8];

static void in_order(int signal) {
    char here[64];
    memset(here, signal, sizeof here);
    store();
    strcat(order, signal == SIGUSR1 ? "1" : signal == SIGUSR2 ? "2" : "h");
    store();
    for (size_t i = 0; i < sizeof here; i++) CHECK(here[i] == signal);
}

// Signals that become deliverable in one moment: each handler interrupts the one before it, at its first instruction.
static void several_at_once(int flags) {
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = in_order, .sa_flags = flags};
    int signals[] = {SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t all, old;
    sigfillset(&all);
    for (int i = 0; i < 3; i++) sigaction(signals[i], &action, NULL);
    for (int round = 0; round < 20; round++) {
        order[0] = 0;
        sigprocmask(SIG_BLOCK, &all, &old);
        for (int i = 0; i < 3; i++) raise(signals[i]);
        sigprocmask(SIG_SETMASK, &old, NULL);
        CHECK(strlen(order) == 3);
        if (round == 0) puts(order);
    }
    for (int i = 0; i < 3; i++) signal(signals[i], SIG_DFL);
}

int main(void) {
    map_pm();
    struct sigaction action = {.sa_handler = handler}, known;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGUSR1, &action, &known) == 0 && known.sa_handler == SIG_DFL);
    raise(SIGUSR1);
    CHECK(calls == 1);
    CHECK(sigaction(SIGUSR1, NULL, &known) == 0 && known.sa_handler == handler);
    CHECK(sigismember(&known.sa_mask, SIGSEGV) && sigismember(&known.sa_mask, SIGTRAP) && sigismember(&known.sa_mask, SIGINT));
    CHECK(sigaction(65, &action, NULL) == -1 && errno == EINVAL);
    CHECK(sigaction(SIGKILL, &action, NULL) == -1 && errno == EINVAL);
    waiting();
    alternate_stack();
    several_at_once(0);
    several_at_once(SA_ONSTACK);
    several_at_once(SA_ONSTACK | SA_NODEFER);
    puts("done");
    return 0;
}
