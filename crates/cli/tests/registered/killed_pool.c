/* libpmemobj registers a word of its own for a moment, to see whether pmemcheck is there. */
#include <libpmemobj.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

int main(void) {
    PMEMobjpool *pool = pmemobj_create("pool", "killed", PMEMOBJ_MIN_POOL, 0600);
    if (pool == NULL)
        return 1;
    uint64_t *root = pmemobj_direct(pmemobj_root(pool, 64));
    root[0] = 42;
    pmemobj_persist(pool, root, 8);
    return kill(getpid(), SIGKILL);
}
