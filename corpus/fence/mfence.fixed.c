// An mfence orders flushes as an sfence does; an lfence does not.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    value[0] = 1;
    PM_CLWB(&value[0]);
    PM_MFENCE();
    value[8] = 2;
    PM_CLFLUSHOPT(&value[8]);
    PM_MFENCE();
    printf("%lu %lu\n", (unsigned long)value[0], (unsigned long)value[8]);
    return 0;
}
