// Nothing was stored since the line was last made durable.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 1;
    PM_CLWB(value);
    PM_SFENCE();
    *value = 2;
    PM_CLWB(value);
    PM_SFENCE();
    printf("%lu\n", (unsigned long)*value);
    return 0;
}
