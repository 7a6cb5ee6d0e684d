// Transactions with numbers, which the program announces: the inner one has a log of its own, and what it snapshotted is not the outer one's.
#include "../pm.h"

#define START_TX(id) PM_REQUEST_OF(19, id, 0, 0, 0)
#define END_TX(id) PM_REQUEST_OF(21, id, 0, 0, 0)
#define ADD_TO_TX(id, at, length) PM_REQUEST_OF(23, id, at, length, 0)
#define OUTER 7
#define INNER 8

struct root {
    uint64_t total;
    char pad[56];
    uint64_t part;
};

static void commit(uint64_t *at, int id) {
    pm_persist(at, sizeof *at);
    END_TX(id);
}

int main(int argc, char **argv) {
    struct root *root = pm_map(argv[argc - 1], PAGE);
    START_TX(OUTER);
    ADD_TO_TX(OUTER, &root->total, sizeof root->total);
    START_TX(INNER);
    ADD_TO_TX(INNER, &root->part, sizeof root->part);
    root->part = 1;
    // The thread is in both.
    root->total = 2;
    commit(&root->part, INNER);
    root->part = 3; //~ tx-store-not-snapshotted
    commit(&root->total, OUTER);
    printf("%lu %lu\n", root->total, root->part);
    return 0;
}
