// mremap gives back pages that hold a store without its flush.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 8 * PAGE);
    pm[7 * PAGE] = 1;
    pm_persist(pm + 7 * PAGE, 1);
    pm = mremap(pm, 8 * PAGE, 4 * PAGE, 0);
    pm[0] = 2;
    pm_persist(pm, 1);
    printf("%d\n", pm[0]);
    return 0;
}
