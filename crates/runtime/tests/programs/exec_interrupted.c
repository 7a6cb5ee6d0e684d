// Handlers that store to PM interrupt programs that cannot be executed, while some of the four signals are blocked or ignored. One that can be
// executed gets what was blocked and ignored all the same.
#include "pm.h"
#include "signal_state.h"
#include <sys/time.h>

static volatile int handled, left;
static sigjmp_buf out;

static void handler(int signal) {
    (void)signal;
    pm[0]++;
    handled++;
    if (left) {
        left = 0;
        siglongjmp(out, 1);
    }
}

static void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
}

static void timer(int microseconds) {
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void in_vain(int times) {
    int before = handled;
    for (int call = 0; handled < before + times; call++) {
        errno = 0;
        if (call % 3 == 0) execl("/nowhere/at/all", "x", NULL);
        else if (call % 3 == 1) execvp("no such program", (char *[]){"x", NULL});
        else execve("/nowhere", (char *[]){"x", NULL}, (char *[]){NULL});
        CHECK(errno == ENOENT);
    }
}

static void run(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    timer(200);
    in_vain(300);
    // A handler that does not return.
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(out, 1) == 0) {
            left = 1;
            in_vain(1 << 20);
        }
    }
    in_vain(100);
    timer(0);
    print_signal_state("after failures");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        print_signal_state("executed");
        return 0;
    }
    static char stack[64 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    map_pm();
    block(SIGTRAP);
    block(SIGSEGV);
    run(0);
    CHECK(sigaltstack(&alternate, NULL) == 0);
    run(SA_ONSTACK);
    raise(SIGTRAP);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGBUS, SIG_IGN);
    run(0);
    run(SA_ONSTACK);
    // Between two signals, and by a child: this one dies if the timer ends in the new program.
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            timer(200);
            in_vain(20);
            timer(0);
            execl("/proc/self/exe", argv[0], "state", NULL);
            _exit(99);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    store();
    return 0;
}
