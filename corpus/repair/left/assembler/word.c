// repair: left
// The store is inline assembly: what it writes is not in the program's terms.
#include "persist.h"
#include "pool.h"

static void set(uint64_t *word, uint64_t value) {
    __asm__ volatile("movq %1, (%0)" : : "r"(word), "r"(value) : "memory");
}

int main(int argc, char **argv) {
    uint64_t *words = pool_open(argv[argc - 1], 4096);
    words[8] = 1;
    pm_persist(&words[8], sizeof words[8]);
    set(&words[0], 2); //~ missing-flush
    printf("%lu %lu\n", (unsigned long)words[0], (unsigned long)words[8]);
    return 0;
}
