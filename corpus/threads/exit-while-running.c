// The program exits while a thread still runs, between its flush and its fence.
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;
static pthread_barrier_t barrier;

static void *work(void *arg) {
    pm[0] = 5; //~ missing-fence
    PM_CLWB(&pm[0]);
    pthread_barrier_wait(&barrier);
    pause();
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&barrier);
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
