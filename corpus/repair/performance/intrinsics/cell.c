// repair: remove-flush, remove-fence
// options: --performance
// build: $CC -g -O2 -mclwb -o app cell.c
// Both, as intrinsics; a local variable is stored in between, whose address nobody has.
#include "pool.h"
#include <immintrin.h>
#include <stdint.h>

static uint64_t set(uint64_t *cell, uint64_t value) {
    uint64_t old = *cell;
    *cell = value;
    _mm_clwb(cell);
    old += 1;
    _mm_clwb(cell); //~ redundant-flush in-stack
    _mm_sfence();
    _mm_sfence(); //~ redundant-fence in-stack
    return old;
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    uint64_t old = set(&cells[0], 1);
    old += set(&cells[8], 2);
    printf("%lu %lu %lu\n", (unsigned long)cells[0], (unsigned long)cells[8], (unsigned long)old);
    return 0;
}
