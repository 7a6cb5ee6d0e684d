// The entry count is published while the entry is flushed and not yet fenced.
// config: order.toml
// build: gcc clang
#include "../pm.h"

struct log {
    volatile uint64_t count;
    char pad[56];
    volatile uint64_t entries[8];
};

static __attribute__((noinline)) void write_entry(struct log *log, uint64_t value) {
    log->entries[0] = value;
    PM_CLWB(&log->entries[0]);
    PM_SFENCE();
}

static __attribute__((noinline)) void publish(struct log *log) {
    log->count = 1;
    PM_CLWB(&log->count);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    struct log *log = pm_map(argv[argc - 1], PAGE);
    write_entry(log, 5);
    publish(log);
    printf("%lu %lu\n", (unsigned long)log->count, (unsigned long)log->entries[0]);
    return 0;
}
