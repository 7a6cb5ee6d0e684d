// The same range is added to the transaction twice.
// build: gcc clang
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t values[8];
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
    struct root *root = pmemobj_direct(oid);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range(oid, 0, sizeof *root);
        root->values[0] = 1;
        root->values[3] = 2;
    } TX_END
    printf("%lu %lu\n", root->values[0], root->values[3]);
    pmemobj_close(pool);
    return 0;
}
