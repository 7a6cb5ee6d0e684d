// repair: subprogram+fence apply
// The store is behind a function pointer, which can only be one of two functions.
#include "persist.h"
#include "pool.h"

typedef void (*operation)(uint64_t *cell, uint64_t value);

static void assign(uint64_t *cell, uint64_t value) {
    *cell = value;
}

static void increase(uint64_t *cell, uint64_t value) {
    *cell += value; //~ missing-flush
}

__attribute__((noinline)) static void apply(uint64_t *cells, operation operation, uint64_t value) {
    for (int i = 0; i < 3; i++)
        operation(&cells[i * 8], value + i); //~ missing-flush
}

static uint64_t totals[24];

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    operation operations[2] = {assign, increase};
    for (int i = 0; i < 2; i++)
        apply(totals, operations[i], 5);
    for (int i = 0; i < 2; i++)
        apply(cells + i * 24, operations[i], 8);
    printf("%lu %lu %lu\n", (unsigned long)totals[16], (unsigned long)cells[0], (unsigned long)cells[40]);
    return 0;
}
