// A child made by a bare clone system call.
#include "../pm.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        pm[0] = 4; //~ missing-flush
        syscall(SYS_exit_group, 0);
    }
    waitpid((pid_t)child, NULL, 0);
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
