// sigsuspend and pselect with masks that block SIGSEGV, and a handler that stores meanwhile.
#include "../pm.h"
#include <signal.h>
#include <sys/select.h>
#include <errno.h>

static volatile uint64_t *pm;

static void on_alarm(int signal) {
    (void)signal;
    pm[0]++; //~ missing-flush
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    sigset_t block, wait;
    struct sigaction action = {0};
    action.sa_handler = on_alarm;
    sigfillset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigprocmask(SIG_BLOCK, &block, NULL);
    sigfillset(&wait);
    sigdelset(&wait, SIGALRM);
    raise(SIGALRM);
    sigsuspend(&wait);
    raise(SIGALRM);
    int interrupted = pselect(0, NULL, NULL, NULL, NULL, &wait) < 0 && errno == EINTR;
    printf("%lu %d\n", (unsigned long)pm[0], interrupted);
    return 0;
}
