// Written once and flushed.
#include "../pm.h"

struct store {
    volatile uint64_t value;
    char pad[120];
    volatile uint64_t version;
};

int main(int argc, char **argv) {
    struct store *store = pm_map(argv[argc - 1], PAGE);
    store->version = 3;
    pm_persist((void *)&store->version, sizeof store->version);
    for (uint64_t i = 1; i <= 20; i++) {
        store->value = i;
        PM_CLWB(&store->value);
        PM_SFENCE();
    }
    printf("version %lu\n", (unsigned long)store->version);
    return 0;
}
