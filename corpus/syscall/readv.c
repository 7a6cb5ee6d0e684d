// readv scatters into PM and into ordinary memory.
#include "../pm.h"
#include <sys/uio.h>

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    char local[4];
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], "aaaabbbbcccc", 12) != 12)
        pm_die("pipe");
    struct iovec parts[] = {{pm, 4}, {local, 4}, {pm + 128, 16}};
    ssize_t got = readv(fds[0], parts, 3); //~ missing-flush
    PM_CLWB(pm);
    PM_SFENCE();
    printf("%zd %.4s %.4s %.4s\n", got, pm, local, pm + 128);
    return 0;
}
