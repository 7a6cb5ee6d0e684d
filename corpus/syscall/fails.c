// Calls with bad buffers fail under recording as they fail without.
#include "../pm.h"
#include <errno.h>

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], "x", 1) != 1)
        pm_die("pipe");
    int bad_fd = read(-1, pm, 8) < 0 ? errno : 0;
    int bad_buffer = read(fds[0], (void *)8, 1) < 0 ? errno : 0;
    char *readonly = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, open(argv[argc - 1], O_RDONLY), 0);
    int bad_page = read(fds[0], readonly, 1) < 0 ? errno : 0;
    ssize_t got = read(fds[0], pm, 8); //~ missing-flush
    printf("%d %d %d %zd %c\n", bad_fd, bad_buffer, bad_page, got, readonly[0]);
    return 0;
}
