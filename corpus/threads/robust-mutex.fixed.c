// A robust mutex in PM whose owner dies: the kernel marks it; all of it is made durable at the end.
// file-differs: holds the identity of a thread and list pointers
#include "../pm.h"
#include <errno.h>
#include <pthread.h>

struct shared {
    pthread_mutex_t mutex;
    char pad[88];
    volatile uint64_t value;
};

static struct shared *shared;

static void *die_with_it(void *arg) {
    pthread_mutex_lock(&shared->mutex);
    return arg;
}

int main(int argc, char **argv) {
    shared = pm_map(argv[argc - 1], PAGE);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attr);
    pthread_t thread;
    pthread_create(&thread, NULL, die_with_it, NULL);
    pthread_join(thread, NULL);
    int died = pthread_mutex_lock(&shared->mutex) == EOWNERDEAD;
    pthread_mutex_consistent(&shared->mutex);
    shared->value = 3;
    pthread_mutex_unlock(&shared->mutex);
    pm_flush(&shared->mutex, sizeof shared->mutex);
    pm_persist((void *)&shared->value, 8);
    printf("%d %lu\n", died, (unsigned long)shared->value);
    return 0;
}
