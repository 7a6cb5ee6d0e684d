// A child that shares its parent's memory ends before it has executed a program; the parent goes on.
#include "../pm.h"
#include <sys/syscall.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pid_t child = vfork();
    if (child == 0)
        _exit(3);
    int first, second;
    waitpid(child, &first, 0);
    child = vfork();
    if (child == 0)
        pm_raw(SYS_exit_group, 4, 0, 0, 0, 0, 0);
    waitpid(child, &second, 0);
    pm[0] = 1; //~ missing-flush
    printf("%d %d\n", WEXITSTATUS(first), WEXITSTATUS(second));
    return 0;
}
