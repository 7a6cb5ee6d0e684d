// The flag is flushed each time.
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
        pm_persist(&pool->in_progress, 4);
        pool->data[i] = i + 1;
        pm_persist((void *)&pool->data[i], 8);
        __atomic_store_n(&pool->in_progress, 0, __ATOMIC_SEQ_CST);
        pm_persist(&pool->in_progress, 4);
    }
    printf("%lu\n", (unsigned long)pool->data[3]);
    return 0;
}
