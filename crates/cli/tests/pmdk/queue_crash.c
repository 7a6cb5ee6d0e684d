/* The example queue under crash test: `setup`, `run` and `verify` as in map_crash.c. */
#define main queue_main
#include "queue/queue.c"
#undef main

#include "acknowledged.h"

#define MOST 32

/* The queue as it must be after some operations: numbers of the enqueued entries that are left. */
struct model {
    long entries[4096];
    long front, back;
};

/* Enqueues (returns 1) or dequeues (0) in the model. */
static int next_operation(struct model *model, long n) {
    static unsigned long seed = 7;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    long length = model->back - model->front;
    if (length < MOST && (length == 0 || (seed >> 33) % 5 < 3)) {
        model->entries[model->back++] = n;
        return 1;
    }
    model->front++;
    return 0;
}

static int text_of(long n, char text[64]) { return snprintf(text, 64, "entry %ld", n) + 1; }

static int equal(struct queue *queue, const struct model *model) {
    if (queue->front != (size_t)model->front || queue->back != (size_t)model->back)
        return 0;
    for (size_t i = queue->front; i < queue->back; i++) {
        char text[64];
        int len = text_of(model->entries[i], text);
        const struct entry *entry = D_RO(queue->entries[i % queue->capacity]);
        if (entry == NULL || entry->len != (size_t)len || memcmp(entry->data, text, (size_t)len) != 0)
            return 0;
    }
    return 1;
}

static void verify(struct queue *queue, long operations) {
    static struct model model;
    long done = acknowledged();
    long from = done < 0 ? 0 : done, to = done < 0 ? operations : done + 1;
    for (long n = 0; n < from; n++)
        next_operation(&model, n);
    for (long n = from; n <= to && n <= operations; n++) {
        if (equal(queue, &model))
            return;
        if (n < operations)
            next_operation(&model, n);
    }
    fail("the queue holds neither the state before nor the state after the operation that was under way");
}

int main(int argc, char **argv) {
    if (argc != 4)
        fail("usage: queue_crash setup|run|verify POOL OPERATIONS");
    int setup = strcmp(argv[1], "setup") == 0, check = strcmp(argv[1], "verify") == 0;
    long operations = atol(argv[3]);
    if (setup)
        unlink(argv[2]);
    if (check && pmemobj_check(argv[2], POBJ_LAYOUT_NAME(queue)) != 1)
        fail("pmemobj_check says that the pool is inconsistent");
    PMEMobjpool *pool = setup ? pmemobj_create(argv[2], POBJ_LAYOUT_NAME(queue), PMEMOBJ_MIN_POOL, 0600)
                              : pmemobj_open(argv[2], POBJ_LAYOUT_NAME(queue));
    if (pool == NULL)
        fail("the pool does not open");
    struct root *root = D_RW(POBJ_ROOT(pool, struct root));
    if (setup && queue_new(pool, &root->queue, MOST) != 0)
        fail("failed to create the queue");
    struct queue *queue = D_RW(root->queue);
    if (check)
        verify(queue, operations);
    if (!setup && !check) {
        static struct model model;
        FILE *quiet = fopen("/dev/null", "w");
        stdout = quiet; /* what the example prints is no acknowledgement */
        for (long n = 0; n < operations; n++) {
            char text[64];
            int len = text_of(n, text);
            int failed = next_operation(&model, n) ? queue_enqueue(pool, queue, text, (size_t)len) : queue_dequeue(pool, queue);
            if (failed)
                fail("an operation was refused");
            acknowledge();
        }
    }
    pmemobj_close(pool);
    return 0;
}
