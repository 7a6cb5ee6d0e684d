// repair: flush
// The helper is used for PM only; its callers fence.
#include "persist.h"
#include "pool.h"

struct log {
    uint64_t words[64];
};

__attribute__((noinline)) static void put(struct log *log, int at, uint64_t value) {
    log->words[at * 8] = value;
}

static void put_two(struct log *log) {
    put(log, 0, 5); //~ missing-flush
    put(log, 1, 6); //~ missing-flush
    pm_fence();
}

static void put_one(struct log *log) {
    put(log, 2, 7); //~ missing-flush
    pm_fence();
}

int main(int argc, char **argv) {
    struct log *log = pool_open(argv[argc - 1], 4096);
    put_two(log);
    put_one(log);
    printf("%lu %lu %lu\n", (unsigned long)log->words[0], (unsigned long)log->words[8], (unsigned long)log->words[16]);
    return 0;
}
