// repair: flush+fence
// build: $CC -g -O2 -pthread -o app counter.c
// A counter that a mutex guards: it has to be durable before the mutex is released.
#include "persist.h"
#include "pool.h"
#include <pthread.h>

struct counter {
    uint64_t value;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *count(void *argument) {
    struct counter *counter = argument;
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&mutex);
        counter->value++; //~ missing-flush
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct counter *counter = pool_open(argv[argc - 1], 4096);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, count, counter);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%lu\n", (unsigned long)counter->value);
    return 0;
}
