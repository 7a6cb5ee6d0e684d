// A tree is built recursively; only the inner nodes are persisted.
#include "../pm.h"

struct node {
    volatile uint32_t depth;
    char pad[60];
};

static uint32_t build(struct node *pool, uint32_t used, uint32_t depth) {
    struct node *node = &pool[used++];
    node->depth = depth; //~ missing-flush x8
    if (depth < 3) {
        used = build(pool, used, depth + 1);
        used = build(pool, used, depth + 1);
        pm_persist(node, sizeof *node);
    }
    return used;
}

int main(int argc, char **argv) {
    struct node *pool = pm_map(argv[argc - 1], PAGE);
    printf("%u nodes\n", build(pool, 0, 0));
    return 0;
}
