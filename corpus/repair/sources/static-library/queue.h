#ifndef QUEUE_H
#define QUEUE_H

#include <stdint.h>

#define QUEUE_SLOTS 6

struct queue {
    uint64_t tail;
    char pad[56];
    uint64_t slots[QUEUE_SLOTS][8];
};

int queue_push(struct queue *queue, uint64_t value);

#endif
