// The short path returns between flush and fence.
#include "../pm.h"

struct log {
    volatile uint64_t count;
    char pad[56];
    volatile uint64_t entries[8];
};

static void append(struct log *log, uint64_t value) {
    log->entries[log->count] = value;
    PM_CLWB(&log->entries[log->count]);
    PM_SFENCE();
    log->count++;
    PM_CLWB(&log->count);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    struct log *log = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 0; i < 3; i++)
        append(log, i + 10);
    printf("%lu entries\n", (unsigned long)log->count);
    return 0;
}
