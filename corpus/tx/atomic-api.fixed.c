// The atomic API: an object is made by a constructor that forgets to persist.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct node {
    uint64_t value;
    char pad[120];
    char text[200];
};

static int construct(PMEMobjpool *pool, void *at, void *arg) {
    struct node *node = at;
    node->value = *(uint64_t *)arg;
    pmemobj_persist(pool, &node->value, sizeof node->value);
    pmemobj_memset_persist(pool, node->text, 'c', sizeof node->text);
    (void)pool;
    return 0;
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    PMEMoid oid;
    uint64_t value = 17;
    if (pmemobj_alloc(pool, &oid, sizeof(struct node), 1, construct, &value) != 0)
        pm_die("pmemobj_alloc");
    struct node *node = pmemobj_direct(oid);
    printf("%lu %.4s\n", node->value, node->text);
    pmemobj_close(pool);
    return 0;
}
