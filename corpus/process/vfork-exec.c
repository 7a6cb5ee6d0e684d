// A program runs between store and flush, by vfork and exec; the second store is forgotten.
#include "../pm.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pid_t child = vfork();
    if (child == 0) {
        execlp("true", "true", (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    pm_persist((void *)&pm[0], 8);
    pm[8] = 2; //~ missing-flush
    printf("%lu %d\n", (unsigned long)(pm[0] + pm[8]), WEXITSTATUS(status));
    return 0;
}
