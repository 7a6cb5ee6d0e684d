// What is cut off by a truncation need not be durable; what stays must.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], 4 * PAGE);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    pm[3 * PAGE] = 2;
    pm_persist((void *)(pm + 3 * PAGE), 1);
    if (truncate(argv[argc - 1], 2 * PAGE) != 0)
        pm_die("truncate");
    printf("%d\n", pm[0]);
    return 0;
}
