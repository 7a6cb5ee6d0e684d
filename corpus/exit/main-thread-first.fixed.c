// The main thread ends before the others.
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;
static pthread_t main_thread;

static void *work(void *arg) {
    pthread_join(main_thread, NULL);
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    main_thread = pthread_self();
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
