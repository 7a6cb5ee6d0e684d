// The kernel stores what it reads into PM; nothing flushes it.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], "from a pipe", 11) != 11)
        pm_die("pipe");
    ssize_t got = read(fds[0], pm + 100, 64);
    pm_persist(pm + 100, (size_t)got);
    printf("%zd %.11s\n", got, pm + 100);
    return 0;
}
