// The program ends in the middle of its transaction. The next opening of the pool rolls back what was snapshotted, and nothing else.
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
    printf("%lu\n", root->a);
    fflush(stdout);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->a, sizeof root->a);
        root->a = 1;
        PM_BARRIER();
        root->beside_a = 2; //~ tx-store-not-snapshotted
        PM_BARRIER();
        root->far_away = 3; //~ tx-store-not-snapshotted
        PM_BARRIER();
        exit(0);
    } TX_END
}
