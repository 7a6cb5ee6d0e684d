// With eADR a plain store needs nothing and a fence makes the non-temporal one durable.
// crashproof: --model eadr
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    PM_NTSTORE(&pm[8], (uint64_t)2);
    PM_SFENCE();
    printf("%lu %lu\n", pm[0], pm[8]);
    return 0;
}
