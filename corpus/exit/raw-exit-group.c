// The program leaves by a system call of its own: nothing of libc runs.
// expect-exit: 6
#include "../pm.h"
#include <sys/syscall.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    printf("%d\n", argc > 0);
    fflush(stdout);
    pm[0] = 1; //~ missing-fence
    PM_CLWB(&pm[0]);
    pm_raw(SYS_exit_group, 6, 0, 0, 0, 0, 0);
    return 0;
}
