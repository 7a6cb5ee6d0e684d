// A flag that says whether an update is in progress is never flushed. Its stores are compiled to exchanges, as those of a lock, but nobody looks at
// their result.
#include "../pm.h"

struct pool {
    volatile uint64_t data[8];
    uint32_t in_progress;
    char pad[60];
};

int main(int argc, char **argv) {
    struct pool *pool = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 0; i < 4; i++) {
        __atomic_store_n(&pool->in_progress, 1, __ATOMIC_SEQ_CST);
        pool->data[i] = i + 1;
        pm_persist((void *)&pool->data[i], 8);
        __atomic_store_n(&pool->in_progress, 0, __ATOMIC_SEQ_CST); //~ missing-flush
    }
    printf("%lu\n", (unsigned long)pool->data[3]);
    return 0;
}
