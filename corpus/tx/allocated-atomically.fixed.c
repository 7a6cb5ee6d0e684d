// The atomic API within a transaction: its objects are not the transaction's, and the program has to flush what it stores.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct node {
    uint64_t value;
    char pad[120];
    uint64_t made;
};

static int construct(PMEMobjpool *pool, void *at, void *arg) {
    struct node *node = at;
    node->made = *(uint64_t *)arg;
    pmemobj_persist(pool, &node->made, sizeof node->made);
    return 0;
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    PMEMoid oid, other;
    uint64_t made = 17;
    TX_BEGIN(pool) {
        if (pmemobj_alloc(pool, &oid, sizeof(struct node), 1, construct, &made) != 0)
            pm_die("pmemobj_alloc");
        if (pmemobj_xalloc(pool, &other, sizeof(struct node), 1, POBJ_XALLOC_ZERO, NULL, NULL) != 0)
            pm_die("pmemobj_xalloc");
        struct node *node = pmemobj_direct(other);
        node->value = 18;
        pmemobj_persist(pool, &node->value, sizeof node->value);
    } TX_END
    printf("%lu %lu\n", ((struct node *)pmemobj_direct(oid))->made, ((struct node *)pmemobj_direct(other))->value);
    pmemobj_close(pool);
    return 0;
}
