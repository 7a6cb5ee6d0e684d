// write(2) writes over a part of what was stored, and is durable at once: what is left of the store needs a flush.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    int fd = open(argv[argc - 1], O_RDWR);
    *(volatile long *)(pm + 64) = 1; //~ missing-flush
    if (pwrite(fd, "half", 4, 64) != 4)
        pm_die("pwrite");
    printf("%.4s\n", (char *)pm + 64);
    return 0;
}
