/* Drives the example queue with mixed operations; prints what a run must reproduce. */
#define main queue_main
#include "queue/queue.c"
#undef main

#define MOST 200

int main(int argc, char **argv) {
    if (argc != 3)
        fail("usage: queue_driver POOL OPERATIONS");
    PMEMobjpool *pool = pmemobj_create(argv[1], POBJ_LAYOUT_NAME(queue), PMEMOBJ_MIN_POOL * 4, 0600);
    if (pool == NULL)
        fail("failed to create the pool");
    struct root *root = D_RW(POBJ_ROOT(pool, struct root));
    if (queue_new(pool, &root->queue, MOST) != 0)
        fail("failed to create the queue");
    struct queue *queue = D_RW(root->queue);
    unsigned long seed = 7;
    long length = 0, operations = atol(argv[2]), refused = 0;
    for (long i = 0; i < operations; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (length < MOST - 1 && (length == 0 || (seed >> 33) % 5 < 3)) {
            char text[64];
            int n = snprintf(text, sizeof(text), "entry %ld", i);
            if (queue_enqueue(pool, queue, text, (size_t)n + 1) != 0)
                refused++;
            else
                length++;
        } else if (queue_dequeue(pool, queue) != 0) {
            refused++;
        } else {
            length--;
        }
    }
    queue_show(pool, queue);
    printf("%ld operations, %ld entries, %ld refused\n", operations, length, refused);
    pmemobj_close(pool);
    return 0;
}
