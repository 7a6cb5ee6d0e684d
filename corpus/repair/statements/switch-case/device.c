// repair: flush, flush
// Stores in cases of a switch, one that falls through.
#include "persist.h"
#include "pool.h"

enum command { RESET, START, STOP };

struct device {
    uint64_t resets;
    char pad0[56];
    uint64_t running;
    char pad1[56];
    uint64_t stops;
};

static void run(struct device *device, enum command command) {
    switch (command) {
    case RESET:
        device->resets++; //~ missing-flush
        /* fall through */
    case STOP:
        device->running = 0;
        pm_persist(&device->running, sizeof device->running);
        break;
    case START:
        device->running = 1;
        pm_persist(&device->running, sizeof device->running);
        device->stops = 99; //~ missing-flush
        break;
    }
}

int main(int argc, char **argv) {
    struct device *device = pool_open(argv[argc - 1], 4096);
    run(device, START);
    run(device, RESET);
    run(device, STOP);
    printf("%lu %lu\n", (unsigned long)device->resets, (unsigned long)device->running);
    return 0;
}
