// Two mappings of one file: a flush through either serves the same line.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *one = pm_map(argv[argc - 1], PAGE);
    volatile uint64_t *two = pm_map(argv[argc - 1], PAGE);
    one[0] = 1;
    PM_CLWB(&two[0]);
    PM_SFENCE();
    two[8] = 2; //~ missing-flush
    PM_CLWB(&one[0]); //~ redundant-flush
    PM_SFENCE(); //~? redundant-fence
    printf("%lu %lu\n", (unsigned long)two[0], (unsigned long)one[8]);
    return 0;
}
