// Without the answers to PMDK's client requests its transactions are not known; a plain forgotten flush still is.
// link: -lpmemobj
// crashproof: --client-requests off
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t a;
    char pad[120];
    uint64_t forgotten;
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->a, sizeof root->a);
        root->a = 1;
    } TX_END
    root->forgotten = 2; //~ missing-flush
    printf("%lu\n", root->a + root->forgotten);
    pmemobj_close(pool);
    return 0;
}
