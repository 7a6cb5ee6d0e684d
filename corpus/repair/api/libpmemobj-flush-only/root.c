// repair: fence
// build: $CC -g -O2 -o app root.c -lpmemobj
// pmemobj_flush, and no pmemobj_drain; the program ends before pmemobj_close would have drained.
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>

struct root {
    uint64_t a;
    char pad[56];
    uint64_t b;
    char pad2[56];
};

static void set(PMEMobjpool *pool, struct root *root) {
    root->a = 1;
    pmemobj_persist(pool, &root->a, sizeof root->a);
    root->b = 2; //~ missing-fence
    pmemobj_flush(pool, &root->b, sizeof root->b);
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "repair", PMEMOBJ_MIN_POOL, 0600);
    if (!pool) {
        fprintf(stderr, "%s\n", pmemobj_errormsg());
        return 99;
    }
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    set(pool, root);
    printf("%lu %lu\n", (unsigned long)root->a, (unsigned long)root->b);
    return 0;
}
