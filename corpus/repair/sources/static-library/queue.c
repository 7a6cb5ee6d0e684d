#include "queue.h"
#include "persist.h"

int queue_push(struct queue *queue, uint64_t value) {
    if (queue->tail == QUEUE_SLOTS)
        return -1;
    queue->slots[queue->tail][0] = value; //~ missing-flush
    pm_fence();
    queue->tail++;
    pm_persist(&queue->tail, sizeof queue->tail);
    return 0;
}
