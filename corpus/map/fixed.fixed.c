// MAP_FIXED puts another page of the file in the place of the first.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 4 * PAGE);
    int fd = open(argv[argc - 1], O_RDWR);
    pm[0] = 1;
    pm_persist(pm, 1);
    if (mmap(pm, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 2 * PAGE) != pm)
        pm_die("mmap");
    pm[0] = 2;
    pm_persist(pm, 1);
    printf("%d %d\n", pm[0], pm[2 * PAGE]);
    return 0;
}
