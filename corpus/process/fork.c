// The child stores and forgets the flush; its parent has done right.
// build: gcc clang
#include "../pm.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    pid_t child = fork();
    if (child == 0) {
        pm[8] = 2; //~ missing-flush x1
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%lu %d\n", (unsigned long)(pm[0] + pm[8]), WEXITSTATUS(status));
    return 0;
}
