// The hit counter lives in volatile memory.
// build: gcc clang
#include "../pm.h"

struct store {
    volatile uint64_t value;
    char pad[120];
    volatile uint64_t hits;
};

static uint64_t hits;

int main(int argc, char **argv) {
    struct store *store = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 1; i <= 20; i++) {
        store->value = i;
        PM_CLWB(&store->value);
        PM_SFENCE();
        hits += 2;
    }
    printf("%lu hits\n", (unsigned long)hits);
    return 0;
}
