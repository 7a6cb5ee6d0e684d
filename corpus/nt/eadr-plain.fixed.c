// Right under eADR: the plain store is durable as soon as it is visible.
// crashproof: --model eadr
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[3] = 33;
    printf("%lu\n", pm[3]);
    return 0;
}
