/*
 * Eight threads store to PM at once: a counter by locked instructions, a word that all of them overwrite with plain
 * stores, and a private array each. Every store's value says who made it and when, so the trace can be checked.
 */
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS 2000

struct pool {
    _Atomic uint64_t counter; /* only locked increments */
    uint64_t pad0[7];
    _Atomic uint64_t shared; /* plain stores by all: thread << 32 | round */
    uint64_t pad1[7];
    uint64_t own[THREADS][64];
};

static struct pool *pool;

static void *work(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        atomic_fetch_add(&pool->counter, 1);
        atomic_store_explicit(&pool->shared, me << 32 | round, memory_order_relaxed);
        *(volatile uint64_t *)&pool->own[me][round % 64] = me << 32 | round;
        if (round % 16 == 0) {
            for (int line = 0; line < 8; line++)
                _mm_clwb(&pool->own[me][line * 8]);
            _mm_clwb((void *)&pool->counter);
            _mm_clwb((void *)&pool->shared);
            _mm_sfence();
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct pool)) != 0)
        return 3;
    pool = mmap(NULL, sizeof(struct pool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 3;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("counter %lu\n", (unsigned long)pool->counter);
    munmap(pool, sizeof(struct pool));
    return pool == NULL;
}
