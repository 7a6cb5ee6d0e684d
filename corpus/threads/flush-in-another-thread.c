// A helper thread that flushes and fences makes another thread's store durable; one line it forgets.
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;

static void *persist_all(void *arg) {
    for (int i = 0; i < 3; i++)
        PM_CLWB(&pm[i * 8]);
    PM_SFENCE();
    return arg;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 0; i < 4; i++)
        pm[i * 8] = i + 1; //~ missing-flush x1
    pthread_t thread;
    pthread_create(&thread, NULL, persist_all, NULL);
    pthread_join(thread, NULL);
    printf("%lu\n", (unsigned long)(pm[0] + pm[24]));
    return 0;
}
