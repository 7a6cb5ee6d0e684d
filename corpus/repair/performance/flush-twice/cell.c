// repair: remove-flush
// options: --performance
// The same line is flushed twice in a row.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")

static void set(uint64_t *cell, uint64_t value) {
    *cell = value;
    FLUSH(cell);
    FLUSH(cell); //~ redundant-flush
    FENCE();
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    set(&cells[0], 1);
    set(&cells[8], 2);
    printf("%lu %lu\n", (unsigned long)cells[0], (unsigned long)cells[8]);
    return 0;
}
