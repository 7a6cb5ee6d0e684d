// The last thread ends itself, and with it the process, by a system call of its own.
// expect-exit: 7
#include "../pm.h"
#include <sys/syscall.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    printf("%d\n", argc > 0);
    fflush(stdout);
    pm[0] = 1;
    pm_persist((void *)pm, 8);
    pm_raw(SYS_exit, 7, 0, 0, 0, 0, 0);
    return 0;
}
