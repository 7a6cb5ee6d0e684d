// The mutex is kept in volatile memory.
#include "../pm.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 50 };

struct shared {
    volatile uint64_t balance;
};

static struct shared *shared;
static pthread_mutex_t mutex;

static void *work(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        shared->balance += 3;
        pm_persist((void *)&shared->balance, sizeof shared->balance);
        pthread_mutex_unlock(&mutex);
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
