// The child's fence does nothing for what its parent had flushed before the fork.
#include "../pm.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    pid_t child = fork();
    if (child == 0) {
        pm[8] = 2;
        PM_CLWB(&pm[8]);
        PM_SFENCE();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
