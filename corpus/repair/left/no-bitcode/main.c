// repair: left
// refuses: not built by crashproof cc
// The store is in code that has no bitcode, and how much it writes is not known.
#include "persist.h"
#include "pool.h"

void vendor_set(uint64_t *cell, uint64_t value);

int main(int argc, char **argv) {
    uint64_t *cells = pool_open(argv[argc - 1], 4096);
    cells[8] = 1;
    pm_persist(&cells[8], sizeof cells[8]);
    vendor_set(&cells[0], 2); //~ missing-flush
    printf("%lu %lu\n", (unsigned long)cells[0], (unsigned long)cells[8]);
    return 0;
}
