// repair: flush+fence
// Two stores in one statement.
#include "persist.h"
#include "pool.h"

struct pair {
    uint64_t first;
    char pad[56];
    uint64_t second;
};

static void both(struct pair *pair, uint64_t value) {
    pair->first = pair->second = value; //~ missing-flush x2
}

int main(int argc, char **argv) {
    struct pair *pair = pool_open(argv[argc - 1], 4096);
    both(pair, 6);
    printf("%lu %lu\n", (unsigned long)pair->first, (unsigned long)pair->second);
    return 0;
}
