// Two fences in a row: the second has nothing to order.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 1;
    PM_CLWB(value);
    PM_SFENCE();
    PM_SFENCE(); //~ redundant-fence x1
    printf("%lu\n", (unsigned long)*value);
    return 0;
}
