// setup: yes
// As dequeue.c, but the queue has forgotten the entry, persistently, when it is reported.
#include "../app.h"

struct queue {
    _Alignas(LINE) uint64_t head;
    _Alignas(LINE) uint64_t tail;
    _Alignas(LINE) uint64_t slots[8];
};

static void handle(struct queue *queue) {
    int entry = (int)queue->slots[queue->head];
    queue->head++;
    pm_persist(&queue->head, sizeof queue->head);
    acknowledge(entry);
}

static void setup(const char *path) {
    struct queue *queue = (struct queue *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        queue->slots[i] = i + 1;
    queue->tail = 3;
    pm_persist(queue, sizeof *queue);
}

static void run(const char *path) {
    struct queue *queue = (struct queue *)pm_map(path, PAGE);
    while (queue->head < queue->tail)
        handle(queue);
}

static void recover(const char *path) {
    struct queue *queue = (struct queue *)pm_map(path, PAGE);
    REQUIRE(queue->head <= queue->tail, "head %lu, tail %lu", queue->head, queue->tail);
    if (queue->head < queue->tail)
        REQUIRE(queue->slots[queue->head] > (uint64_t)acknowledged(), "entry %lu would be handled again",
                queue->slots[queue->head]);
}

APP(setup, run, recover, NULL)
