// repair: flush
// build: $CC -g -O2 -o app root.c -lpmemobj
// Two fields of the root object; one is persisted by pmemobj_persist.
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>

struct root {
    uint64_t version;
    char pad[56];
    uint64_t count;
    char pad2[56];
};

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "repair", PMEMOBJ_MIN_POOL, 0600);
    if (!pool) {
        fprintf(stderr, "%s\n", pmemobj_errormsg());
        return 99;
    }
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    root->version = 3;
    pmemobj_persist(pool, &root->version, sizeof root->version);
    root->count = 1; //~ missing-flush
    printf("version %lu, count %lu\n", (unsigned long)root->version, (unsigned long)root->count);
    pmemobj_close(pool);
    return 0;
}
