// repair: flush+fence
// The store is in the condition of a while: it runs once more than the body.
#include "persist.h"
#include "pool.h"

struct queue {
    uint64_t left;
};

static int drain(struct queue *queue) {
    int steps = 0;
    while (queue->left-- > 1) //~ missing-flush
        steps++;
    return steps;
}

int main(int argc, char **argv) {
    struct queue *queue = pool_open(argv[argc - 1], 4096);
    queue->left = 5;
    pm_persist(queue, sizeof *queue);
    int steps = drain(queue);
    printf("%d %lu\n", steps, (unsigned long)queue->left);
    return 0;
}
