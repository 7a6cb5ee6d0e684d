// A nested transaction is part of the outer one: its snapshots count in both.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t a;
    uint64_t b;
};

static void inner(PMEMobjpool *pool, struct root *root) {
    TX_BEGIN(pool) {
        root->a++;
        pmemobj_tx_add_range_direct(&root->b, sizeof root->b);
        root->b++;
    } TX_END
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->a, sizeof root->a);
        root->a = 10;
        inner(pool, root);
        PM_BARRIER();
        root->b += 5;
    } TX_END
    printf("%lu %lu\n", root->a, root->b);
    pmemobj_close(pool);
    return 0;
}
