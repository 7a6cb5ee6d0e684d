// Right under eADR, wrong without: the plain store is never flushed.
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[3] = 33; //~ missing-flush
    printf("%lu\n", pm[3]);
    return 0;
}
