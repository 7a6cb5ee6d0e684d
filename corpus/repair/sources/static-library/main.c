// repair: flush
// The bug is in a static library.
#include "pool.h"
#include "queue.h"

int main(int argc, char **argv) {
    struct queue *queue = pool_open(argv[argc - 1], 4096);
    uint64_t pushed = 0;
    while (queue_push(queue, 100 + pushed) == 0)
        pushed++;
    printf("%lu %lu\n", (unsigned long)pushed, (unsigned long)queue->slots[5][0]);
    return 0;
}
