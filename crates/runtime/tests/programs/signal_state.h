// Prints what a program was started with: which of the four signals it ignores, has blocked, and has pending; then takes what is pending.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const int four[] = {SIGSEGV, SIGBUS, SIGTRAP, SIGSYS};

static void print_signal_state(const char *name) {
    sigset_t mask, pending;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigpending(&pending);
    printf("%s:", name);
    for (int i = 0; i < 4; i++) {
        struct sigaction action;
        sigaction(four[i], NULL, &action);
        const char *does = action.sa_handler == SIG_IGN ? "i" : action.sa_handler == SIG_DFL ? "d" : "h";
        printf(" %s%s%s", does, sigismember(&mask, four[i]) ? "b" : "", sigismember(&pending, four[i]) ? "p" : "");
    }
    printf(" %d", sigismember(&mask, SIGSTKFLT) + 2 * sigismember(&mask, SIGUSR1));
    for (int i = 0; i < 4; i++)
        if (sigismember(&pending, four[i])) {
            sigset_t one;
            struct timespec now = {0, 0};
            sigemptyset(&one);
            sigaddset(&one, four[i]);
            printf(" got %d", sigtimedwait(&one, NULL, &now) == four[i]);
        }
    printf("\n");
    fflush(stdout);
}
