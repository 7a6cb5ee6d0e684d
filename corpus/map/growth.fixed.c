// The file grows, and more of it is mapped behind the first part.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pm_persist(pm, 1);
    int fd = open(argv[argc - 1], O_RDWR);
    if (ftruncate(fd, 4 * PAGE) != 0)
        pm_die("ftruncate");
    char *more = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
    more[0] = 2;
    pm_persist(more, 1);
    more[2 * PAGE] = 3;
    pm_persist(more + 2 * PAGE, 1);
    printf("%d %d %d\n", pm[0], more[0], more[2 * PAGE]);
    return 0;
}
