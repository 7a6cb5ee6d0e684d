// Two threads flush one line: each flush counts for its own thread, so only a second one of the same thread is redundant.
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;
static pthread_barrier_t barrier;

static void *work(void *arg) {
    pm[(intptr_t)arg] = 1;
    pthread_barrier_wait(&barrier);
    PM_CLWB(pm);
    pthread_barrier_wait(&barrier);
    PM_SFENCE();
    return NULL;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, work, (void *)1);
    work(NULL);
    pthread_join(thread, NULL);
    printf("%lu\n", (unsigned long)(pm[0] + pm[1]));
    return 0;
}
