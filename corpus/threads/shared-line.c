// Threads store to their own bytes of one line; a plain store is never lost beside a locked one.
#include "../pm.h"
#include <pthread.h>

enum { THREADS = 7, ROUNDS = 300 };
static volatile unsigned char *pm;

static void *work(void *arg) {
    intptr_t id = (intptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        pm[id] = (unsigned char)(i + id); //~ missing-flush
        __asm__ volatile("lock incq %0" : "+m"(*(volatile uint64_t *)(pm + 8)) : : "memory"); //~ missing-flush
    }
    return NULL;
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pm_print("line", (void *)pm, 16);
    return 0;
}
