// Killed in the middle of a transaction, as crash tests do it: what the program had acknowledged is a finding.
// expect-signal: 9
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>
#include <signal.h>

struct root {
    uint64_t a;
    char pad[248];
    uint64_t far_away;
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    TX_BEGIN(pool) {
        root->far_away = 3; //~ tx-store-not-snapshotted
        printf("stored\n");
        fflush(stdout);
        pmemobj_tx_add_range_direct(&root->a, sizeof root->a);
        root->a = 1;
        PM_BARRIER();
        raise(SIGKILL);
    } TX_END
}
