// repair: remove-fence
// options: --performance
// mfence also orders loads; it stays, and the sfence goes.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")

static void set(uint64_t *cell, uint64_t value) {
    *cell = value;
    FLUSH(cell);
    FENCE();
    FENCE(); //~ redundant-fence
    __asm__ volatile("mfence" : : : "memory");
}

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    set(&cells[0], 1);
    printf("%lu\n", (unsigned long)cells[0]);
    return 0;
}
