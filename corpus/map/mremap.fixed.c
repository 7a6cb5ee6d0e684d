// mremap moves the mapping as it grows: a line is flushed at its new address.
#include "../pm.h"

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 64 * PAGE) != 0)
        pm_die("ftruncate");
    char *pm = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pm[100] = 1;
    pm = mremap(pm, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    if (pm == MAP_FAILED)
        pm_die("mremap");
    pm_persist(pm + 100, 1);
    pm[50 * PAGE] = 2;
    pm_persist(pm + 50 * PAGE, 1);
    pm = mremap(pm, 64 * PAGE, 51 * PAGE, 0);
    printf("%d %d\n", pm[100], pm[50 * PAGE]);
    return 0;
}
