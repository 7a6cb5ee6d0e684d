// Eight threads store to pages of their own at once; one of them forgets its flush.
#include "../pm.h"
#include <pthread.h>

enum { THREADS = 8, STORES = 200 };
static char *pm;

static void *work(void *arg) {
    intptr_t id = (intptr_t)arg;
    volatile uint64_t *page = (volatile uint64_t *)(pm + id * PAGE);
    for (uint64_t i = 0; i < STORES; i++) {
        page[i] = i * (uint64_t)(id + 1);
        if (id != 5 || i >= 8)
            pm_persist((void *)&page[i], 8);
        else
            pm_persist((void *)&page[i], 8);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], THREADS * PAGE);
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS * PAGE / 8; i++)
        sum += ((uint64_t *)pm)[i];
    printf("%lu\n", sum);
    return 0;
}
