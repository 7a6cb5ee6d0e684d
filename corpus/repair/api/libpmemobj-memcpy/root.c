// repair: flush
// build: $CC -g -O2 -o app root.c -lpmemobj
// memcpy where pmemobj_memcpy_persist was meant; pmemobj_persist is used elsewhere.
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct root {
    uint64_t length;
    char pad[56];
    char text[192];
};

static void write_text(PMEMobjpool *pool, struct root *root, const char *text) {
    size_t length = strlen(text) + 1;
    memcpy(root->text, text, length); //~ missing-flush
    root->length = length;
    pmemobj_persist(pool, &root->length, sizeof root->length);
}

int main(int argc, char **argv) {
    PMEMobjpool *pool = pmemobj_create(argv[argc - 1], "repair", PMEMOBJ_MIN_POOL, 0600);
    if (!pool) {
        fprintf(stderr, "%s\n", pmemobj_errormsg());
        return 99;
    }
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    write_text(pool, root, "what was written here should be here after a power failure, too");
    printf("%lu %s\n", (unsigned long)root->length, root->text);
    pmemobj_close(pool);
    return 0;
}
