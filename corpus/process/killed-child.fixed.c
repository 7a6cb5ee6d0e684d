// A child is killed in the middle of an update, as scripts stop servers, and its parent ends in order. What the child was
// about to flush is no mistake.
#include "../pm.h"
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pid_t child = fork();
    if (child == 0) {
        pm[0] = 1;
        pm_persist((void *)&pm[0], 8);
        pm[8] = 2;
        pm_persist((void *)&pm[8], 8);
        pm[16] = 3;
        kill(getpid(), SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%d %lu\n", WTERMSIG(status), (unsigned long)(pm[0] + pm[8] + pm[16]));
    return 0;
}
