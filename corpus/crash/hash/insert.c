// The bucket's token says that the slot is taken, and may persist before key and value.
#include "../app.h"

#define SLOTS 7

struct slot {
    uint64_t key, value;
};

struct bucket {
    _Alignas(LINE) uint64_t tokens; // bit i: slot i is taken
    _Alignas(LINE) struct slot slots[SLOTS];
};

struct table {
    struct bucket buckets[4];
};

static void insert(struct table *table, uint64_t key) {
    struct bucket *bucket = &table->buckets[key % 4];
    int slot = __builtin_ctzll(~bucket->tokens);
    bucket->slots[slot] = (struct slot){.key = key, .value = key * key}; //~ crash-order
    pm_flush(&bucket->slots[slot], sizeof(struct slot));
    bucket->tokens |= 1ull << slot; //~ persisted
    pm_persist(&bucket->tokens, sizeof bucket->tokens);
}

static void run(const char *path) {
    struct table *table = (struct table *)pm_map(path, PAGE);
    insert(table, 5);
    insert(table, 9);
    insert(table, 6);
}

static void recover(const char *path) {
    struct table *table = (struct table *)pm_map(path, PAGE);
    for (uint64_t b = 0; b < 4; b++) {
        struct bucket *bucket = &table->buckets[b];
        for (int i = 0; i < SLOTS; i++) {
            if (!(bucket->tokens >> i & 1))
                continue;
            struct slot *slot = &bucket->slots[i];
            REQUIRE(slot->key != 0 && slot->key % 4 == b, "key %lu in bucket %lu", slot->key, b);
            REQUIRE(slot->value == slot->key * slot->key, "key %lu has value %lu", slot->key, slot->value);
        }
    }
}

APP(NULL, run, recover, NULL)
