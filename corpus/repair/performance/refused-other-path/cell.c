// repair: left
// options: --performance
// The second flush does nothing in this run; with other arguments it is the only one.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")

static void set(uint64_t *cell, uint64_t value, int eager) {
    *cell = value;
    if (eager)
        FLUSH(cell);
    FLUSH(cell); //~ redundant-flush
    FENCE();
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    set(&cells[0], 1, argc < 3);
    printf("%lu\n", (unsigned long)cells[0]);
    return 0;
}
