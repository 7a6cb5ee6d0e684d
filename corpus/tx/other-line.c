// The forgotten snapshot is of a cache line in which the transaction has nothing else: a flush would be no remedy.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t balance[32];
};

static void transfer(PMEMobjpool *pool, struct root *root, int from, int to, uint64_t amount) {
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->balance[from], sizeof root->balance[from]);
        root->balance[from] -= amount;
        PM_BARRIER();
        root->balance[to] += amount; //~ tx-store-not-snapshotted
    } TX_END
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    transfer(pool, root, 0, 16, 5);
    printf("%lu\n", root->balance[0] + root->balance[16]);
    pmemobj_close(pool);
    return 0;
}
