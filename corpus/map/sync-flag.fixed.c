// MAP_SYNC is asked for first, as PM programs do, and refused by an ordinary file system.
#include "../pm.h"
#include <errno.h>

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, PAGE) != 0)
        pm_die("ftruncate");
    volatile char *pm = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    int refused = pm == MAP_FAILED ? errno : 0;
    if (refused)
        pm = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, fd, 0);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    printf("%d %d\n", refused == EOPNOTSUPP || refused == 0, pm[0]);
    return 0;
}
