// The parent makes durable what its child stored, all but one line.
#include "../pm.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pid_t child = fork();
    if (child == 0) {
        pm[0] = 1;
        pm[8] = 2;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    PM_CLWB(&pm[0]);
    PM_CLWB(&pm[8]);
    PM_SFENCE();
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
