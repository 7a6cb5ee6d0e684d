// repair: flush
// Only dirty slots are flushed, and the flag is wrong.
#include "persist.h"
#include "pool.h"

struct slot {
    uint64_t key;
    uint64_t dirty;
    char pad[48];
};

static void put(struct slot *slot, uint64_t key, int dirty) {
    slot->key = key; //~ missing-flush
    if (dirty)
        pm_flush(&slot->key, sizeof slot->key);
    pm_fence();
}

int main(int argc, char **argv) {
    struct slot *slots = pool_open(argv[argc - 1], 4096);
    for (int i = 0; i < 4; i++)
        put(&slots[i], 100 + i, 0);
    printf("%lu %lu\n", (unsigned long)slots[0].key, (unsigned long)slots[3].key);
    return 0;
}
