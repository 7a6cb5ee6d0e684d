// posix_spawn and system run programs beside the recording; their output comes out in order.
#include "../pm.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    char *echo[] = {"echo", "spawned", NULL};
    pid_t child;
    int status;
    if (posix_spawnp(&child, "echo", NULL, NULL, echo, environ) != 0)
        pm_die("posix_spawnp");
    waitpid(child, &status, 0);
    pm[0] = (uint64_t)system("exit 3") >> 8; //~ missing-flush
    printf("%lu %d\n", (unsigned long)pm[0], WEXITSTATUS(status));
    return 0;
}
