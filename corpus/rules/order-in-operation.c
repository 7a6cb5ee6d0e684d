// An operation publishes the entry, durably, before it writes it. Another one that only publishes is right.
// config: order.toml
#include "../../include/crashproof.h"
#include "../pm.h"

struct log {
    volatile uint64_t count;
    char pad[56];
    volatile uint64_t entries[8];
};

static __attribute__((noinline)) void write_entry(struct log *log, uint64_t value) {
    log->entries[0] = value;
    pm_persist((void *)&log->entries[0], 8);
}

static __attribute__((noinline)) void publish(struct log *log, uint64_t count) {
    log->count = count;
    pm_persist((void *)&log->count, 8);
}

int main(int argc, char **argv) {
    struct log *log = pm_map(argv[argc - 1], PAGE);
    CRASHPROOF_OP_BEGIN("clear");
    publish(log, 0);
    CRASHPROOF_OP_END("clear");
    CRASHPROOF_OP_BEGIN("append");
    publish(log, 1); //~ rule-order x1
    write_entry(log, 5);
    CRASHPROOF_OP_END("append");
    printf("%lu %lu\n", (unsigned long)log->count, (unsigned long)log->entries[0]);
    return 0;
}
