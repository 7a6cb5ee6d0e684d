// Flushed and never fenced.
// build: gcc clang
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 42; //~ missing-fence x1
    PM_CLWB(value);
    printf("stored %lu\n", *value);
    return 0;
}
