// A mutex kept in PM: it is volatile data, rewritten across fences and never persisted.
#include "../pm.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 50 };

struct shared {
    pthread_mutex_t mutex;
    char pad[88];
    volatile uint64_t balance;
};

static struct shared *shared;

static void *work(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&shared->mutex); //~? transient-data
        shared->balance += 3;
        pm_persist((void *)&shared->balance, sizeof shared->balance);
        pthread_mutex_unlock(&shared->mutex); //~ transient-data
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
    printf("%lu\n", (unsigned long)shared->balance);
    return 0;
}
