// Many short-lived threads, one after another, each with a store of its own.
#include "../pm.h"
#include <pthread.h>

static volatile uint64_t *pm;

static void *work(void *arg) {
    intptr_t id = (intptr_t)arg;
    pm[id * 8] = (uint64_t)id + 1; //~ missing-fence x1
    PM_CLWB(&pm[id * 8]);
    if (id != 40)
        PM_SFENCE();
    return NULL;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    uint64_t sum = 0;
    for (intptr_t i = 0; i < 60; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)i) != 0)
            pm_die("pthread_create");
        pthread_join(thread, NULL);
        sum += pm[i * 8];
    }
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
