// repair: left
// options: --performance
// A locked instruction is between the flushes; nothing is removed across it.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")

static void set(uint64_t *cell, uint64_t value) {
    *cell = value;
    FLUSH(cell);
    __atomic_fetch_add(&cell[8], 1, __ATOMIC_SEQ_CST);
    FLUSH(cell); //~ redundant-flush
    FLUSH(&cell[8]);
    FENCE();
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    set(&cells[0], 1);
    printf("%lu %lu\n", (unsigned long)cells[0], (unsigned long)cells[8]);
    return 0;
}
