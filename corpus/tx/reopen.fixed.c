// A pool is closed and opened again; the forgotten store is in the second run.
// link: -lpmemobj
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>

struct root {
    uint64_t opened;
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    root->opened = 1;
    pmemobj_persist(pool, root, sizeof *root);
    pmemobj_close(pool);
    pool = pmemobj_open(argv[argc - 1], "corpus");
    if (!pool)
        pm_die("pmemobj_open");
    root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    root->opened++;
    pmemobj_persist(pool, root, sizeof *root);
    printf("%lu\n", root->opened);
    pmemobj_close(pool);
    return 0;
}
