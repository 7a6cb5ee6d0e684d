// repair: flush+fence
// Stored, nothing else.
#include "persist.h"
#include "pool.h"

struct counter {
    uint64_t value;
    char pad[56];
    uint64_t limit;
};

static void add(struct counter *counter, uint64_t amount) {
    counter->value += amount; //~ missing-flush
}

int main(int argc, char **argv) {
    struct counter *counter = pool_open(argv[argc - 1], 4096);
    counter->limit = 100;
    pm_persist(&counter->limit, sizeof counter->limit);
    add(counter, 7);
    printf("%lu of %lu\n", (unsigned long)counter->value, (unsigned long)counter->limit);
    return 0;
}
