// The tail of the queue and the slot before it are persisted by one fence, in any order.
#include "../app.h"

#define SLOTS 4

struct queue {
    _Alignas(LINE) uint64_t head;
    _Alignas(LINE) uint64_t tail;
    _Alignas(LINE) struct {
        _Alignas(LINE) uint64_t number;
    } slots[SLOTS];
};

static void enqueue(struct queue *queue, uint64_t number) {
    uint64_t tail = queue->tail;
    queue->slots[tail % SLOTS].number = number; //~ crash-order
    PM_CLWB(&queue->slots[tail % SLOTS]);
    queue->tail = tail + 1; //~ persisted
    PM_CLWB(&queue->tail);
    PM_SFENCE();
}

static void dequeue(struct queue *queue) {
    queue->head++;
    pm_persist(&queue->head, sizeof queue->head);
}

static void run(const char *path) {
    struct queue *queue = (struct queue *)pm_map(path, PAGE);
    for (uint64_t number = 1; number <= 5; number++) {
        enqueue(queue, number);
        if (number >= 3)
            dequeue(queue);
    }
}

// What is in the queue is numbered without a gap.
static void recover(const char *path) {
    struct queue *queue = (struct queue *)pm_map(path, PAGE);
    REQUIRE(queue->head <= queue->tail && queue->tail - queue->head <= SLOTS, "head %lu, tail %lu", queue->head,
            queue->tail);
    for (uint64_t at = queue->head; at < queue->tail; at++)
        REQUIRE(queue->slots[at % SLOTS].number == at + 1, "entry %lu is %lu", at + 1, queue->slots[at % SLOTS].number);
}

APP(NULL, run, recover, NULL)
