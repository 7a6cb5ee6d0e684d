// C11 threads count in PM; nobody ever persists the counter.
#include "../pm.h"
#include <stdatomic.h>
#include <threads.h>

enum { THREADS = 4, ROUNDS = 250 };
static _Atomic uint64_t *counter;

static int work(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(counter, 1); //~ missing-flush
    }
    return 0;
}

int main(int argc, char **argv) {
    counter = pm_map(argv[argc - 1], PAGE);
    thrd_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        thrd_create(&threads[i], work, NULL);
    for (int i = 0; i < THREADS; i++)
        thrd_join(threads[i], NULL);
    printf("%lu\n", (unsigned long)*counter);
    return 0;
}
