// The counter is persisted at first, so it is meant to be durable: its later stores lack a flush.
#include "../pm.h"

struct store {
    volatile uint64_t value;
    char pad[120];
    volatile uint64_t sequence;
};

int main(int argc, char **argv) {
    struct store *store = pm_map(argv[argc - 1], PAGE);
    store->sequence = 100;
    pm_persist((void *)&store->sequence, sizeof store->sequence);
    for (uint64_t i = 1; i <= 20; i++) {
        store->value = i;
        PM_CLWB(&store->value);
        PM_SFENCE();
        store->sequence += 2; //~ missing-flush
    }
    printf("sequence %lu\n", (unsigned long)store->sequence);
    return 0;
}
