// A process with threads at work forks; parent and child go on storing.
#include "../pm.h"
#include <pthread.h>
#include <sys/wait.h>

static volatile uint64_t *pm;
static volatile int stop;

static void *work(void *arg) {
    uint64_t i = 0;
    while (!stop) {
        pm[8] = ++i;
        pm_persist((void *)&pm[8], 8);
    }
    pm[8] = 7;
    pm_persist((void *)&pm[8], 8);
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            pm[16 + i * 8] = (uint64_t)i; //~ missing-flush x1
            if (i != 3)
                pm_persist((void *)&pm[16 + i * 8], 8);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("%lu %lu\n", (unsigned long)pm[8], (unsigned long)pm[40]);
    return 0;
}
