// One fence serves many flushes; those after it are left without.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 10; i++)
        pm[i * LINE] = (char)i;
    for (int i = 0; i < 10; i++)
        PM_CLWB(pm + i * LINE);
    PM_SFENCE();
    for (int i = 10; i < 14; i++)
        pm[i * LINE] = (char)i;
    for (int i = 10; i < 14; i++)
        PM_CLWB(pm + i * LINE);
    PM_SFENCE();
    printf("%d %d\n", pm[9 * LINE], pm[13 * LINE]);
    return 0;
}
