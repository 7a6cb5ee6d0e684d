// Protection comes and goes; a store while it is writable is still a store.
#include "../pm.h"

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 2 * PAGE) != 0)
        pm_die("ftruncate");
    volatile char *pm = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (mprotect((void *)pm, PAGE, PROT_READ | PROT_WRITE) != 0)
        pm_die("mprotect");
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    if (mprotect((void *)pm, PAGE, PROT_READ) != 0)
        pm_die("mprotect");
    printf("%d %d\n", pm[0], pm[PAGE]);
    return 0;
}
