// repair: flush
// The entry is not flushed; the fence that it needs is there.
#include "persist.h"
#include "pool.h"

struct log {
    uint64_t count;
    char pad[56];
    uint64_t entries[32];
};

static void append(struct log *log, uint64_t value) {
    log->entries[log->count * 8] = value;
    pm_flush(&log->entries[log->count * 8], sizeof log->entries[log->count * 8]);
    pm_fence();
    log->count++;
    pm_flush(&log->count, sizeof log->count);
    pm_fence();
}

int main(int argc, char **argv) {
    struct log *log = pool_open(argv[argc - 1], 4096);
    for (uint64_t i = 0; i < 3; i++)
        append(log, i + 10);
    printf("%lu entries, last %lu\n", (unsigned long)log->count, (unsigned long)log->entries[16]);
    return 0;
}
