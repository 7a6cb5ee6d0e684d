// The optimiser merges two stores of neighbouring fields into one.
// build: gcc clang
// flags: -O2
#include "../pm.h"

struct range {
    uint64_t start, end;
};

__attribute__((noinline)) static void set(struct range *range, uint64_t value) {
    range->start = value;
    range->end = value;
}

int main(int argc, char **argv) {
    struct range *range = pm_map(argv[argc - 1], PAGE);
    set(range, (uint64_t)argc + 40);
    pm_persist(range, sizeof *range);
    printf("%d\n", range->start == range->end);
    return 0;
}
