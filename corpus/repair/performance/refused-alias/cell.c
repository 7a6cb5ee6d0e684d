// repair: left
// options: --performance
// The store between the flushes goes elsewhere in this run, and may go to the flushed line in another.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")

static void set(uint64_t *cell, uint64_t *other, uint64_t value) {
    *cell = value;
    FLUSH(cell);
    *other = value;
    FLUSH(cell); //~ redundant-flush
    FENCE();
    FLUSH(other);
    FENCE();
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    set(&cells[0], &cells[argc * 8], 1);
    printf("%lu\n", (unsigned long)cells[0]);
    return 0;
}
