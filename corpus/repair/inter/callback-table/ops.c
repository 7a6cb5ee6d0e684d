// repair: subprogram+fence open_device
// A table of operations; the one that stores is used on PM only.
#include "persist.h"
#include "pool.h"

struct device {
    uint64_t state;
    uint64_t pad[7];
};

struct operations {
    void (*open)(struct device *device);
    uint64_t (*read)(const struct device *device);
};

static void open_device(struct device *device) {
    device->state = 21; //~ missing-flush
}

static uint64_t read_device(const struct device *device) {
    return device->state * 2;
}

static const struct operations operations = {open_device, read_device};

int main(int argc, char **argv) {
    struct device *devices = pool_open(argv[argc - 1], 4096);
    const struct operations *table = &operations;
    table->open(&devices[1]);
    printf("%lu\n", (unsigned long)table->read(&devices[1]));
    return 0;
}
