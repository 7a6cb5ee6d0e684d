// The same line is flushed twice before the fence.
// build: gcc clang
#include "../pm.h"

struct pair {
    volatile uint64_t first;
    volatile uint64_t second;
};

int main(int argc, char **argv) {
    struct pair *pair = pm_map(argv[argc - 1], PAGE);
    pair->first = 1;
    pair->second = 2;
    PM_CLWB(&pair->first);
    PM_CLWB(&pair->second); //~ redundant-flush x1
    PM_SFENCE();
    printf("%lu %lu\n", (unsigned long)pair->first, (unsigned long)pair->second);
    return 0;
}
