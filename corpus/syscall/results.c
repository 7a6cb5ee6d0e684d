// Results of calls that the kernel writes back: stat, pipe, wait, sigprocmask, uname.
#include "../pm.h"
#include <signal.h>
#include <sys/wait.h>

struct results {
    char status_line[64];
    int status;
    char pipe_line[60];
    int fds[2];
    char mask_line[56];
    sigset_t old;
};

int main(int argc, char **argv) {
    struct results *results = pm_map(argv[argc - 1], PAGE);
    sigset_t none;
    sigemptyset(&none);
    if (pipe(results->fds) != 0) //~ missing-flush
        pm_die("pipe");
    if (sigprocmask(SIG_BLOCK, &none, &results->old) != 0) //~ missing-flush
        pm_die("sigprocmask");
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    if (waitpid(child, &results->status, 0) != child) //~ missing-flush
        pm_die("waitpid");
    printf("%d %d\n", results->fds[1] - results->fds[0], WEXITSTATUS(results->status));
    return 0;
}
