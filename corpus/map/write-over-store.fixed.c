// write(2) writes over a part of what was stored, and is durable at once: here over all that was stored.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    int fd = open(argv[argc - 1], O_RDWR);
    *(volatile long *)(pm + 64) = 1;
    if (pwrite(fd, "all of it", 9, 64) != 9)
        pm_die("pwrite");
    printf("%.9s\n", (char *)pm + 64);
    return 0;
}
