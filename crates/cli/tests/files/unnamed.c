// Makes a file without a name here, gives it the name in the last argument in the way that the first one says, and maps it then.
#include "../../../../corpus/pm.h"
#include <sys/syscall.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    char *way = argv[1], *name = argv[2], old[64], first[4096];
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (argc != 3 || fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die("O_TMPFILE");
    snprintf(old, sizeof old, "/proc/self/fd/%d", fd);
    snprintf(first, sizeof first, "%s.first", name);
    int renamed = strcmp(way, "renamed") == 0;
    if (strcmp(way, "unseen") == 0) {
        // By a system call of a child that has no runtime any more: what it executes has its own environment.
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = {"ln", "-L", old, name, NULL}, *nothing[] = {NULL};
            pm_raw(SYS_execve, (long)"/bin/ln", (long)arguments, (long)nothing, 0, 0, 0);
            _exit(1);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            pm_die("ln");
    } else if (strcmp(way, "empty") != 0 || linkat(fd, "", AT_FDCWD, name, AT_EMPTY_PATH) != 0) {
        // Older kernels let only root link an empty path.
        if (linkat(AT_FDCWD, old, AT_FDCWD, renamed ? first : name, AT_SYMLINK_FOLLOW) != 0)
            pm_die(name);
    }
    if (renamed && rename(first, name) != 0)
        pm_die(first);
    uint64_t *pm = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        pm_die("mmap");
    *pm = 1;
    pm_persist(pm, sizeof *pm);
    return 0;
}
