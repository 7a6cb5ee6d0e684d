// The line is flushed before its last store.
#include "../pm.h"

struct node {
    uint64_t key;
    uint64_t value;
};

int main(int argc, char **argv) {
    struct node *node = pm_map(argv[argc - 1], PAGE);
    node->key = 7;
    PM_CLWB(node);
    node->value = 49; //~ missing-flush
    PM_SFENCE();
    printf("%lu -> %lu\n", node->key, node->value);
    return 0;
}
