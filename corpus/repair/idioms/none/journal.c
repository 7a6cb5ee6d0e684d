// repair: flush+fence
// The program has never heard of flushes.
#include "pool.h"
#include <stdint.h>

struct journal {
    uint64_t sequence;
    char pad[56];
    uint64_t state;
};

static void begin(struct journal *journal) {
    journal->sequence++; //~ missing-flush
    journal->state = 1; //~ missing-flush
}

int main(int argc, char **argv) {
    struct journal *journal = pool_open(argv[argc - 1], 4096);
    begin(journal);
    printf("%lu %lu\n", (unsigned long)journal->sequence, (unsigned long)journal->state);
    return 0;
}
