// The parent is gone before its grandchild stores.
#include "../pm.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    int fds[2];
    if (pipe(fds) != 0)
        pm_die("pipe");
    if (fork() == 0) {
        if (fork() == 0) {
            pm[0] = 9;
            pm_persist((void *)&pm[0], 8);
            if (write(fds[1], "x", 1) != 1)
                _exit(1);
            _exit(0);
        }
        _exit(0);
    }
    wait(NULL);
    char byte;
    if (read(fds[0], &byte, 1) != 1)
        pm_die("read");
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
