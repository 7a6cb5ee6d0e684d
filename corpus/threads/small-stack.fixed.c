// A thread with the smallest stack that the system allows.
#include "../pm.h"
#include <limits.h>
#include <pthread.h>

static volatile uint64_t *pm;

static void *work(void *arg) {
    for (int i = 0; i < 20; i++)
        pm[i * 8] = (uint64_t)i;
    for (int i = 0; i < 20; i++)
        PM_CLWB(&pm[i * 8]);
    PM_SFENCE();
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &attr, work, NULL) != 0)
        pm_die("pthread_create");
    pthread_join(thread, NULL);
    printf("%lu\n", (unsigned long)pm[19 * 8]);
    return 0;
}
