// Only when the entry is new has the caller flushed already.
#include "../pm.h"

struct entry {
    volatile uint64_t key;
    volatile uint64_t value;
    char pad[48];
};

static void put(struct entry *entry, uint64_t key, uint64_t value) {
    if (entry->key == 0) {
        entry->key = key;
        entry->value = value;
    } else
        entry->value = value;
    PM_CLWB(entry);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    struct entry *table = pm_map(argv[argc - 1], PAGE);
    put(&table[1], 1, 10);
    put(&table[2], 2, 20);
    put(&table[1], 1, 11);
    put(&table[2], 2, 21);
    printf("%lu %lu\n", (unsigned long)table[1].value, (unsigned long)table[2].value);
    return 0;
}
