// The file is written by write(2) as well; a store beside that is forgotten.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    int fd = open(argv[argc - 1], O_RDWR);
    if (pwrite(fd, "through the file", 16, 1024) != 16 || fsync(fd) != 0)
        pm_die("pwrite");
    pm[64] = 'm';
    pm_persist((void *)(pm + 64), 1);
    printf("%.16s %c\n", (char *)pm + 1024, pm[64]);
    return 0;
}
