// repair: flush+fence
// The store is the increment of a for loop, whose variable lies in PM.
#include "persist.h"
#include "pool.h"

struct scan {
    uint64_t cursor;
    char pad[56];
    uint64_t values[8];
};

static uint64_t sum(struct scan *scan) {
    uint64_t sum = 0;
    for (; scan->cursor < 8; scan->cursor++) //~ missing-flush
        sum += scan->values[scan->cursor];
    return sum;
}

int main(int argc, char **argv) {
    struct scan *scan = pool_open(argv[argc - 1], 4096);
    for (uint64_t i = 0; i < 8; i++)
        scan->values[i] = i * i;
    pm_persist(scan->values, sizeof scan->values);
    printf("%lu\n", (unsigned long)sum(scan));
    printf("at %lu\n", (unsigned long)scan->cursor);
    return 0;
}
