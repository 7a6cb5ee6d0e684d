// repair: left
// options: --performance
// A call between the flushes may store anything.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")
#include <string.h>

static uint64_t *shared;

__attribute__((noinline)) static void log_it(int verbose) {
    if (verbose)
        *shared += 1;
}

static void set(uint64_t *cell, uint64_t value, int verbose) {
    *cell = value;
    FLUSH(cell);
    log_it(verbose);
    FLUSH(cell); //~ redundant-flush
    FENCE();
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    shared = cells;
    set(&cells[0], 1, argc > 2);
    printf("%lu\n", (unsigned long)cells[0]);
    return 0;
}
