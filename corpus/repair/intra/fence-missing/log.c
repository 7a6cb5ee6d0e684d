// repair: fence
// Flushed, never fenced.
#include "persist.h"
#include "pool.h"

struct log {
    uint64_t count;
    uint64_t last;
};

static void set(struct log *log, uint64_t value) {
    log->last = value; //~ missing-fence
    pm_flush(&log->last, sizeof log->last);
}

int main(int argc, char **argv) {
    struct log *log = pool_open(argv[argc - 1], 4096);
    set(log, 42);
    printf("last %lu\n", (unsigned long)log->last);
    return 0;
}
