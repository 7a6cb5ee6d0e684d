// repair: flush+fence
// The program's flush is clflush, which would need no fence; one more does no harm.
#include "pool.h"
#include <stdint.h>

static void write_back(const void *at) {
    __asm__ volatile("clflush %0" : "+m"(*(volatile char *)at) : : "memory");
}

struct journal {
    uint64_t sequence;
    char pad[56];
    uint64_t state;
};

static void begin(struct journal *journal) {
    journal->sequence++;
    write_back(&journal->sequence);
    journal->state = 1; //~ missing-flush
}

int main(int argc, char **argv) {
    struct journal *journal = pool_open(argv[argc - 1], 4096);
    begin(journal);
    printf("%lu %lu\n", (unsigned long)journal->sequence, (unsigned long)journal->state);
    return 0;
}
