// The fence comes before the flush that it should order.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 42; //~ missing-fence
    PM_SFENCE(); //~? redundant-fence
    PM_CLWB(value);
    printf("stored %lu\n", (unsigned long)*value);
    return 0;
}
