// A thread ends the program.
// expect-exit: 6
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;

static void *work(void *arg) {
    pm[0] = 1;
    pm_persist((void *)&pm[0], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    exit(6);
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    return 0;
}
