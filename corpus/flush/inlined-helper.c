// A small inlined setter, called twice; one caller forgets to persist.
// build: gcc clang
#include "../pm.h"

struct item {
    volatile uint64_t price;
    char pad[56];
};

static inline __attribute__((always_inline)) void set_price(struct item *item, uint64_t price) {
    item->price = price;
}

int main(int argc, char **argv) {
    struct item *items = pm_map(argv[argc - 1], PAGE);
    set_price(&items[0], 10);
    pm_persist(&items[0], sizeof items[0].price);
    set_price(&items[1], 20); //~ missing-flush x1
    printf("%lu %lu\n", items[0].price, items[1].price);
    return 0;
}
