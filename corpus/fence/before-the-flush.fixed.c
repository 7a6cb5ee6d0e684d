// The fence comes before the flush that it should order.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 42;
    PM_CLWB(value);
    PM_SFENCE();
    printf("stored %lu\n", (unsigned long)*value);
    return 0;
}
