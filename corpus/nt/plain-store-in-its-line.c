// The fence behind a non-temporal store makes that store durable, not the plain one beside it.
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[1] = 7; //~ missing-flush
    PM_NTSTORE(&pm[0], (uint64_t)8);
    PM_SFENCE();
    printf("%lu %lu\n", pm[0], pm[1]);
    return 0;
}
