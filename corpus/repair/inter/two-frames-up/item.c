// repair: subprogram+fence set_item
// Only the outermost call knows that the item is persistent.
#include "persist.h"
#include "pool.h"

struct item {
    uint64_t key;
    uint64_t value;
};

struct shop {
    struct item best;
};

__attribute__((noinline)) static void set_word(uint64_t *word, uint64_t value) {
    *word = value;
}

__attribute__((noinline)) static void set_item(struct item *item, uint64_t key, uint64_t value) {
    set_word(&item->key, key);
    set_word(&item->value, value);
}

static void choose(struct shop *shop) {
    struct item candidates[4];
    for (uint64_t i = 0; i < 4; i++)
        set_item(&candidates[i], i, i * i);
    set_item(&shop->best, candidates[3].key, candidates[3].value); //~ missing-flush
}

int main(int argc, char **argv) {
    struct shop *shop = pool_open(argv[argc - 1], 4096);
    choose(shop);
    printf("%lu %lu\n", (unsigned long)shop->best.key, (unsigned long)shop->best.value);
    return 0;
}
