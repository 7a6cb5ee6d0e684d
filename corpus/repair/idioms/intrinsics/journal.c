// repair: flush+fence, flush
// build: $CC -g -O2 -mclwb -o app journal.c
// Raw intrinsics, and no function of the program's own.
#include "pool.h"
#include <immintrin.h>
#include <stdint.h>

struct journal {
    uint64_t sequence;
    char pad0[56];
    uint64_t state;
    char pad1[56];
    uint64_t owner;
};

static void begin(struct journal *journal) {
    journal->owner = 5; //~ missing-flush
    _mm_sfence();
    journal->sequence++;
    _mm_clwb(&journal->sequence);
    _mm_sfence();
    journal->state = 1; //~ missing-flush
}

int main(int argc, char **argv) {
    struct journal *journal = pool_open(argv[argc - 1], 4096);
    begin(journal);
    printf("%lu %lu\n", (unsigned long)journal->sequence, (unsigned long)journal->state);
    return 0;
}
