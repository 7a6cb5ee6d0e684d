// Transactions of several threads at once, each on its own counter.
// link: -lpmemobj -lpthread
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>
#include <pthread.h>

struct counter {
    uint64_t count;
    uint64_t square;
    char pad[112];
};

static PMEMobjpool *pool;
static struct counter *counters;

static void *work(void *arg) {
    struct counter *counter = &counters[(intptr_t)arg];
    for (int i = 0; i < 20; i++) {
        TX_BEGIN(pool) {
            pmemobj_tx_add_range_direct(&counter->count, sizeof counter->count);
            counter->count++;
            PM_BARRIER();
            counter->square = counter->count * counter->count; //~ tx-store-not-snapshotted
        } TX_END
    }
    return NULL;
}

int main(int argc, char **argv) {
    pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    counters = pmemobj_direct(pmemobj_root(pool, 4 * sizeof(struct counter)));
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%lu %lu\n", counters[0].count, counters[3].square);
    pmemobj_close(pool);
    return 0;
}
