// A field of an object that the transaction changes is stored to without a snapshot.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t a;
    uint64_t b;
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
    struct root *root = pmemobj_direct(oid);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range(oid, offsetof(struct root, a), sizeof root->a);
        root->a = 1;
        PM_BARRIER();
        root->b = 2; //~ tx-store-not-snapshotted
    } TX_END
    printf("%lu %lu\n", root->a, root->b);
    pmemobj_close(pool);
    return 0;
}
