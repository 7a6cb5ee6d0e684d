// One thread flushes, another one fences: a fence orders the flushes of its own thread only.
// build: gcc clang
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;

static void *store_and_flush(void *arg) {
    pm[0] = 1; //~ missing-fence x1
    PM_CLWB(&pm[0]);
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, store_and_flush, NULL);
    pthread_join(thread, NULL);
    pm[8] = 2;
    PM_CLWB(&pm[8]);
    PM_SFENCE();
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
