// A thread is cancelled after its store; its clean-up handler flushes, and forgets the fence.
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;
static pthread_barrier_t barrier;

static void clean_up(void *arg) {
    (void)arg;
    PM_CLWB(pm);
}

static void *work(void *arg) {
    pthread_cleanup_push(clean_up, NULL);
    pm[0] = 6; //~ missing-fence
    pthread_barrier_wait(&barrier);
    pause();
    pthread_cleanup_pop(0);
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&barrier);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
