// clflush is durable by itself, clflushopt is not.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    value[0] = 5;
    PM_CLFLUSH(&value[0]);
    value[8] = 6;
    PM_CLFLUSH(&value[8]);
    printf("%lu %lu\n", (unsigned long)value[0], (unsigned long)value[8]);
    return 0;
}
