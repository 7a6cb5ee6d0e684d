// repair: flush+fence
// A statement over several lines, with comments in it and after it.
#include "persist.h"
#include "pool.h"

struct entry {
    uint64_t checksum;
};

static uint64_t mix(uint64_t a, uint64_t b) {
    return a * 31 + b;
}

static void seal(struct entry *entry, uint64_t a, uint64_t b) {
    entry->checksum = //~ missing-flush
        mix(a,        // the first half; not the second
            mix(b,
                7)); /* done; really */
    printf("sealed\n");
}

int main(int argc, char **argv) {
    struct entry *entry = pool_open(argv[argc - 1], 4096);
    seal(entry, 1, 2);
    printf("%lu\n", (unsigned long)entry->checksum);
    return 0;
}
