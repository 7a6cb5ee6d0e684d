// msync makes a range durable, here the wrong page.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 4 * PAGE);
    pm[2 * PAGE + 10] = 'm'; //~ missing-flush
    if (msync(pm + PAGE, PAGE, MS_SYNC) != 0)
        pm_die("msync");
    printf("%c\n", pm[2 * PAGE + 10]);
    return 0;
}
