// An aborted transaction rolls back what was snapshotted.
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
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->a, sizeof root->a);
        pmemobj_tx_add_range_direct(&root->b, sizeof root->b);
        root->a = 1;
        PM_BARRIER();
        root->b = 2;
        pmemobj_tx_abort(1);
    } TX_ONABORT {
        printf("aborted\n");
    } TX_END
    printf("%lu %lu\n", root->a, root->b);
    pmemobj_close(pool);
    return 0;
}
