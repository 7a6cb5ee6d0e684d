// repair: subprogram+fence fill
// A recursive function fills a volatile and a persistent tree.
#include "persist.h"
#include "pool.h"

struct node {
    uint64_t value;
    uint64_t unused[7];
};

__attribute__((noinline)) static void fill(struct node *nodes, uint64_t at, uint64_t size) {
    if (at >= size)
        return;
    nodes[at].value = at * 3; //~ missing-flush
    fill(nodes, 2 * at + 1, size);
    fill(nodes, 2 * at + 2, size);
}

static struct node shadow[8];

int main(int argc, char **argv) {
    struct node *nodes = pool_open(argv[argc - 1], 4096);
    fill(shadow, 0, 8);
    fill(nodes, 0, 7);
    printf("%lu %lu\n", (unsigned long)shadow[7].value, (unsigned long)nodes[6].value);
    return 0;
}
