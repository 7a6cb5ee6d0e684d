// What the program persists itself in a transaction is meant to be so, but once is enough; however it comes by the function.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t a;
    uint64_t beside_a;
    char pad[240];
    uint64_t far_away;
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    void (*volatile persist)(PMEMobjpool *, const void *, size_t) = pmemobj_persist;
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->a, sizeof root->a);
        root->a = 1;
        root->beside_a = 2;
        pmemobj_persist(pool, &root->beside_a, sizeof root->beside_a);
        root->far_away = 3;
        persist(pool, &root->far_away, sizeof root->far_away);
        persist(pool, &root->far_away, sizeof root->far_away); //~ redundant-flush
        pmemobj_flush(pool, &root->far_away, sizeof root->far_away); //~ redundant-flush
        pmemobj_drain(pool);
    } TX_END
    pmemobj_drain(pool); //~ redundant-fence
    printf("%lu %lu\n", root->beside_a, root->far_away);
    pmemobj_close(pool);
    return 0;
}
