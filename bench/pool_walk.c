/* The same as walk.c on libpmemobj: a list of 100 entries in a pool, updated in transactions. */
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRIES 100

POBJ_LAYOUT_BEGIN(pool_walk);
POBJ_LAYOUT_ROOT(pool_walk, struct root);
POBJ_LAYOUT_TOID(pool_walk, struct node);
POBJ_LAYOUT_END(pool_walk);

struct node {
    TOID(struct node) next;
    uint64_t number, check;
};

struct root {
    TOID(struct node) head;
};

static int walk(int argc, char **argv) {
    int setup = strcmp(argv[1], "setup") == 0;
    if (setup)
        unlink(argv[2]);
    PMEMobjpool *pool = setup ? pmemobj_create(argv[2], POBJ_LAYOUT_NAME(pool_walk), PMEMOBJ_MIN_POOL, 0600)
                              : pmemobj_open(argv[2], POBJ_LAYOUT_NAME(pool_walk));
    if (pool == NULL) {
        fprintf(stderr, "%s\n", pmemobj_errormsg());
        return 3;
    }
    struct root *root = D_RW(POBJ_ROOT(pool, struct root));
    if (setup)
        for (uint64_t i = 0; i < ENTRIES; i++)
            TX_BEGIN(pool) {
                TOID(struct node) node = TX_ZNEW(struct node);
                D_RW(node)->check = 1;
                D_RW(node)->next = root->head;
                TX_ADD_DIRECT(&root->head);
                root->head = node;
            }
            TX_END
    if (strcmp(argv[1], "verify") == 0) {
        int entries = 0;
        for (TOID(struct node) node = root->head; !TOID_IS_NULL(node); node = D_RO(node)->next, entries++)
            if (D_RO(node)->check != D_RO(node)->number * 31 + 1)
                return 1;
        if (entries != ENTRIES)
            return 1;
    }
    if (strcmp(argv[1], "run") == 0) {
        TOID(struct node) node = root->head;
        for (long i = 0; i < atol(argv[3]); i++) {
            TX_BEGIN(pool) {
                TX_ADD(node);
                D_RW(node)->number = (uint64_t)i;
                D_RW(node)->check = (uint64_t)i * 31 + 1;
            }
            TX_END
            node = TOID_IS_NULL(D_RO(node)->next) ? root->head : D_RO(node)->next;
        }
    }
    pmemobj_close(pool);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "repeat") != 0)
        return walk(argc, argv);
    for (long i = 0; i < atol(argv[3]); i++) {
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = {argv[0], "verify", argv[2], NULL};
            exit(walk(3, arguments));
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return 3;
    }
    return 0;
}
