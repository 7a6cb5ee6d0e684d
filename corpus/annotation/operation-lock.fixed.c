// The lock is in ordinary memory.
#include "../../include/crashproof.h"
#include "../pm.h"

struct pool {
    volatile uint32_t lock;
    char pad[60];
    volatile uint64_t words[8];
};

static uint32_t lock_word;

static void put(struct pool *pool, volatile uint32_t *lock, int at, uint64_t value) {
    CRASHPROOF_OP_BEGIN("put");
    while (__sync_val_compare_and_swap(lock, 0, 1) != 0)
        ;
    pool->words[at] = value;
    pm_persist((void *)&pool->words[at], 8);
    __asm__ volatile("movl $0, %0" : "=m"(*lock) : : "memory");
    CRASHPROOF_OP_END("put");
}

int main(int argc, char **argv) {
    struct pool *pool = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 4; i++)
        put(pool, &lock_word, i, 10 + i);
    return 0;
}
