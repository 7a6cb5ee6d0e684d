// repair: flush, flush+fence
// A macro of several statements, as lists are often made of.
#include "persist.h"
#include "pool.h"

struct node {
    uint64_t next;
    char pad0[56];
    uint64_t previous;
    char pad1[56];
};

#define LINK(nodes, a, b)            \
    do {                             \
        (nodes)[a].next = (b);       \
        (nodes)[b].previous = (a);   \
    } while (0)

static void build(struct node *nodes) {
    LINK(nodes, 1, 2); //~ missing-flush x2
}

int main(int argc, char **argv) {
    struct node *nodes = pool_open(argv[argc - 1], 4096);
    build(nodes);
    printf("%lu %lu\n", (unsigned long)nodes[1].next, (unsigned long)nodes[2].previous);
    return 0;
}
