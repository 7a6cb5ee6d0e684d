/* Drives the example lists with many inserts; prints them, which a run must reproduce. */
#define main lists_main
#include "lists.c"
#undef main

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: list_driver POOL OPERATIONS\n");
        return 2;
    }
    PMEMobjpool *pool = pmemobj_create(argv[1], POBJ_LAYOUT_NAME(two_lists), PMEMOBJ_MIN_POOL * 4, 0600);
    if (pool == NULL)
        return 3;
    struct my_root *root = D_RW(POBJ_ROOT(pool, struct my_root));
    for (long i = 0; i < atol(argv[2]); i++)
        list_insert(pool, &root->lists[i % MAX_LISTS], i % 3 ? LIST_FOO : LIST_BAR, (int)i);
    for (int i = 0; i < MAX_LISTS; i++) {
        list_print(pool, &root->lists[i], LIST_FOO);
        list_print(pool, &root->lists[i], LIST_BAR);
    }
    pmemobj_close(pool);
    return 0;
}
