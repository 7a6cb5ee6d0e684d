// Memory that is reserved is no part of the transaction until it is published: the program has to flush what it stores.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    PMEMoid node;
};

struct node {
    uint64_t value;
    char pad[248];
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
    struct root *root = pmemobj_direct(oid);
    struct pobj_action action;
    TX_BEGIN(pool) {
        PMEMoid reserved = pmemobj_reserve(pool, &action, sizeof(struct node), 1);
        struct node *node = pmemobj_direct(reserved);
        node->value = 7;
        pmemobj_persist(pool, &node->value, sizeof node->value);
        pmemobj_tx_publish(&action, 1);
        pmemobj_tx_add_range(oid, 0, sizeof *root);
        root->node = reserved;
    } TX_END
    printf("%lu\n", ((struct node *)pmemobj_direct(root->node))->value);
    pmemobj_close(pool);
    return 0;
}
