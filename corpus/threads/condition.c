// A mutex and a condition variable in PM hand a value from thread to thread; its last change is not flushed.
// file-differs: holds what the condition variable happens to hold
#include "../pm.h"
#include <pthread.h>

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    char pad[104];
    volatile uint64_t turn;
};

static struct shared *shared;

static void *play(void *arg) {
    intptr_t id = (intptr_t)arg;
    struct shared *sync = shared;
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&sync->mutex); //~? transient-data
        while ((intptr_t)(shared->turn % 2) != id)
            pthread_cond_wait(&sync->condition, &sync->mutex); //~? transient-data
        shared->turn++; //~ missing-flush x1
        if (shared->turn != 20)
            pm_persist((void *)&shared->turn, 8);
        pthread_cond_broadcast(&sync->condition); //~? transient-data
        pthread_mutex_unlock(&sync->mutex); //~? transient-data
    }
    return NULL;
}

int main(int argc, char **argv) {
    shared = pm_map(argv[argc - 1], PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, play, (void *)1);
    play(NULL);
    pthread_join(thread, NULL);
    printf("%lu\n", (unsigned long)shared->turn);
    return 0;
}
