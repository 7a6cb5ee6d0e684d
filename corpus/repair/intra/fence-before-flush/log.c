// repair: fence
// Fence and flush in the wrong order.
#include "persist.h"
#include "pool.h"

struct record {
    uint64_t id;
    uint64_t value;
};

static void update(struct record *record, uint64_t value) {
    record->value = value; //~ missing-fence
    pm_fence(); //~? redundant-fence
    pm_flush(&record->value, sizeof record->value);
}

int main(int argc, char **argv) {
    struct record *record = pool_open(argv[argc - 1], 4096);
    record->id = 1;
    pm_persist(&record->id, sizeof record->id);
    update(record, 9);
    printf("%lu %lu\n", (unsigned long)record->id, (unsigned long)record->value);
    return 0;
}
