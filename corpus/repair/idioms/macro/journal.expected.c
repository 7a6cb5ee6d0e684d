// repair: flush+fence
// The program's idiom is macros of its own.
#include "pool.h"
#include <stdint.h>

#define FLUSH(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define FENCE() __asm__ volatile("sfence" : : : "memory")
#define PERSIST(p) \
    do {           \
        FLUSH(p);  \
        FENCE();   \
    } while (0)

struct journal {
    uint64_t sequence;
    char pad[56];
    uint64_t state;
};

static void begin(struct journal *journal) {
    journal->sequence++;
    PERSIST(&journal->sequence);
    journal->state = 1;
    PERSIST(&journal->state);
}

int main(int argc, char **argv) {
    struct journal *journal = pool_open(argv[argc - 1], 4096);
    begin(journal);
    printf("%lu %lu\n", (unsigned long)journal->sequence, (unsigned long)journal->state);
    return 0;
}
