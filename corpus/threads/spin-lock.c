// A spin lock in PM, taken by compare-exchange and released by a plain store.
#include "../pm.h"
#include <pthread.h>
#include <sched.h>

enum { THREADS = 3, ROUNDS = 40 };

struct shared {
    volatile uint32_t lock;
    char pad[60];
    volatile uint64_t total;
};

static struct shared *shared;

static void *work(void *arg) {
    volatile uint32_t *lock = &shared->lock;
    for (int i = 0; i < ROUNDS; i++) {
        while (__sync_val_compare_and_swap(lock, 0, 1) != 0) //~? transient-data
            sched_yield();
        shared->total += 2;
        pm_persist((void *)&shared->total, sizeof shared->total);
        __asm__ volatile("movl $0, %0" : "=m"(*lock) : : "memory"); //~ transient-data
    }
    return arg;
}

int main(int argc, char **argv) {
    shared = pm_map(argv[argc - 1], PAGE);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%lu\n", (unsigned long)shared->total);
    return 0;
}
