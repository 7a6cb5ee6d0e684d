// repair: left
// options: --performance
// An atomic operation is between the flushes: other threads meet there.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")

static uint64_t turn;

static void set(uint64_t *cell, uint64_t value) {
    *cell = value;
    FLUSH(cell);
    __atomic_store_n(&turn, 1, __ATOMIC_RELEASE);
    FLUSH(cell); //~ redundant-flush
    FENCE();
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    set(&cells[0], 1);
    printf("%lu %lu\n", (unsigned long)cells[0], (unsigned long)turn);
    return 0;
}
