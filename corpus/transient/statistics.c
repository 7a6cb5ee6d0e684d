// A hit counter lives in PM, is rewritten across many fences and never persisted. That is no evidence that it is volatile.
// build: gcc clang
#include "../pm.h"

struct store {
    volatile uint64_t value;
    char pad[120];
    volatile uint64_t hits;
};

int main(int argc, char **argv) {
    struct store *store = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 1; i <= 20; i++) {
        store->value = i;
        PM_CLWB(&store->value);
        PM_SFENCE();
        store->hits += 2; //~ missing-flush
    }
    printf("%lu hits\n", (unsigned long)store->hits);
    return 0;
}
