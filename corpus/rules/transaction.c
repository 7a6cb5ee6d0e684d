// A function whose stores belong into a transaction is called outside one.
// config: transaction.toml
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    volatile uint64_t balance;
};

static __attribute__((noinline)) void set_balance(struct root *root, uint64_t balance) {
    root->balance = balance;
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    set_balance(root, 1); //~ rule-transaction x1
    pmemobj_persist(pool, root, sizeof *root);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(root, sizeof *root);
        set_balance(root, 2);
    } TX_END
    printf("%lu\n", (unsigned long)root->balance);
    pmemobj_close(pool);
    return 0;
}
