// A file that is mapped and unmapped here, and then given to the program in the last argument, which may have no runtime. That is
// this one, too, statically linked: with the argument "write" or "read" it does that to the file.
#include "../../../../corpus/pm.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    char *path = argv[1], *what = argv[2];
    if (argc == 3) {
        char byte = 'x';
        int fd = open(path, O_RDWR);
        ssize_t done = strcmp(what, "write") == 0 ? pwrite(fd, &byte, 1, 100) : pread(fd, &byte, 1, 100);
        return done == 1 ? 0 : 1;
    }
    uint64_t *pm = pm_map(path, PAGE);
    *pm = 1;
    pm_persist(pm, sizeof *pm);
    munmap(pm, PAGE);
    pid_t child;
    int status;
    char *arguments[] = {argv[3], path, what, NULL};
    if (posix_spawn(&child, argv[3], NULL, NULL, arguments, environ) != 0 || waitpid(child, &status, 0) != child)
        pm_die(argv[3]);
    return status;
}
