// repair: flush
// The index is taken and advanced by a call.
#include "persist.h"
#include "pool.h"

#define SLOTS 8

struct ring {
    uint64_t head;
    char pad[56];
    uint64_t slots[SLOTS * 8];
};

static uint64_t next(struct ring *ring) {
    uint64_t at = ring->head;
    ring->head = (at + 1) % SLOTS;
    pm_persist(&ring->head, sizeof ring->head);
    return at * 8;
}

static void push(struct ring *ring, uint64_t value) {
    ring->slots[next(ring)] = value; //~ missing-flush
    pm_fence();
}

int main(int argc, char **argv) {
    struct ring *ring = pool_open(argv[argc - 1], 4096);
    push(ring, 11);
    push(ring, 22);
    printf("%lu %lu\n", (unsigned long)ring->head, (unsigned long)ring->slots[8]);
    return 0;
}
