// Two functions change the length and flush it nowhere. The one that stored last is the finding, the other is named in it.
#include "../pm.h"

struct queue {
    volatile uint64_t length;
    char pad[56];
    volatile uint64_t slots[8];
};

static __attribute__((noinline)) void push(struct queue *queue, uint64_t value) {
    queue->slots[queue->length] = value;
    pm_persist((void *)&queue->slots[queue->length], 8);
    queue->length++;
    PM_SFENCE();
}

static __attribute__((noinline)) void pop(struct queue *queue) {
    queue->length--; //~ missing-flush
    PM_SFENCE();
}

int main(int argc, char **argv) {
    struct queue *queue = pm_map(argv[argc - 1], PAGE);
    push(queue, 5);
    push(queue, 6);
    pop(queue);
    printf("%lu\n", (unsigned long)queue->length);
    return 0;
}
