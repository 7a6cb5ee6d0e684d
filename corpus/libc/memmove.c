// memmove within PM, forwards and backwards.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    volatile size_t len = 300;
    for (size_t i = 0; i < len; i++)
        pm[i] = (char)('A' + i % 26);
    pm_persist(pm, len);
    memmove(pm + 5, pm, len - 5);
    pm_persist(pm + 5, len - 5);
    memmove(pm, pm + 10, len - 10); //~ missing-flush
    printf("%.40s\n", pm);
    return 0;
}
