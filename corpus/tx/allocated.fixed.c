// A new object needs no snapshot within its transaction; the root that points to it does.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    PMEMoid head;
    uint64_t count;
};

struct node {
    uint64_t value;
    PMEMoid next;
};

static void push(PMEMobjpool *pool, PMEMoid oid, uint64_t value) {
    struct root *root = pmemobj_direct(oid);
    TX_BEGIN(pool) {
        PMEMoid added = pmemobj_tx_alloc(sizeof(struct node), 1);
        struct node *node = pmemobj_direct(added);
        node->value = value;
        node->next = root->head;
        pmemobj_tx_add_range_direct(&root->head, sizeof root->head);
        root->head = added;
        pmemobj_tx_add_range_direct(&root->count, sizeof root->count);
        PM_BARRIER();
        root->count++;
    } TX_END
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
    for (uint64_t i = 0; i < 5; i++)
        push(pool, oid, i);
    printf("%lu\n", ((struct root *)pmemobj_direct(oid))->count);
    pmemobj_close(pool);
    return 0;
}
