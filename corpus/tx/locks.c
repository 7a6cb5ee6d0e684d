// PMDK's own locks live in the pool and are volatile by design; the field beside them is plainly forgotten.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    PMEMmutex mutex;
    PMEMrwlock rwlock;
    uint64_t guarded;
    char pad[56];
    uint64_t forgotten;
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    for (int i = 0; i < 5; i++) {
        TX_BEGIN_PARAM(pool, TX_PARAM_MUTEX, &root->mutex, TX_PARAM_NONE) {
            pmemobj_tx_add_range_direct(&root->guarded, sizeof root->guarded);
            root->guarded++;
        } TX_END
        pmemobj_rwlock_wrlock(pool, &root->rwlock);
        pmemobj_rwlock_unlock(pool, &root->rwlock);
    }
    root->forgotten = root->guarded; //~ missing-flush
    printf("%lu\n", root->forgotten);
    pmemobj_close(pool);
    return 0;
}
