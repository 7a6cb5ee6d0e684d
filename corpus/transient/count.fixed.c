// The log flushes each event, then the count of events.
#include "../pm.h"

struct log {
    volatile uint64_t count;
    char pad[56];
    volatile uint64_t events[64];
};

static void append(struct log *log, uint64_t event) {
    uint64_t n = log->count;
    log->events[n] = event;
    PM_CLWB(&log->events[n]);
    PM_SFENCE();
    log->count = n + 1;
    PM_CLWB(&log->count);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    struct log *log = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 1; i <= 6; i++)
        append(log, 100 + i);
    printf("%lu events\n", (unsigned long)log->count);
    return 0;
}
