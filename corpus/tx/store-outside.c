// A balance that is changed in transactions elsewhere is changed here without one.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t from;
    uint64_t to;
};

static void transfer(PMEMobjpool *pool, struct root *root, uint64_t amount) {
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(root, sizeof *root);
        root->from -= amount;
        PM_BARRIER();
        root->to += amount;
    } TX_END
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    transfer(pool, root, 5);
    root->to += 7; //~ tx-store-outside
    transfer(pool, root, 6);
    printf("%lu\n", root->to + root->from);
    pmemobj_close(pool);
    return 0;
}
