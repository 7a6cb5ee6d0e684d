// setup: yes
// As update.c, but the new value goes to a free slot, and one store of the tokens switches between them.
#include "../app.h"

struct slot {
    _Alignas(LINE) uint64_t key;
    uint64_t low, high; // of one value: high is the complement of low
};

struct bucket {
    _Alignas(LINE) uint64_t tokens;
    struct slot slots[3];
};

static int find(struct bucket *bucket, uint64_t key) {
    for (int i = 0; i < 3; i++) {
        if (bucket->tokens >> i & 1 && bucket->slots[i].key == key)
            return i;
    }
    REQUIRE(0, "key %lu is lost", key);
    return -1;
}

static void update(struct bucket *bucket, uint64_t key, uint64_t value) {
    int old = find(bucket, key);
    int new = __builtin_ctzll(~bucket->tokens);
    bucket->slots[new] = (struct slot){.key = key, .low = value, .high = ~value};
    pm_persist(&bucket->slots[new], sizeof(struct slot));
    bucket->tokens ^= 1ull << old | 1ull << new;
    pm_persist(&bucket->tokens, sizeof bucket->tokens);
}

static void setup(const char *path) {
    struct bucket *bucket = (struct bucket *)pm_map(path, PAGE);
    for (uint64_t i = 0; i < 2; i++)
        bucket->slots[i] = (struct slot){.key = 10 + i, .low = 1, .high = ~1ull};
    bucket->tokens = 3;
    pm_persist(bucket, sizeof *bucket);
}

static void run(const char *path) {
    struct bucket *bucket = (struct bucket *)pm_map(path, PAGE);
    update(bucket, 10, 2);
    update(bucket, 11, 3);
}

static void recover(const char *path) {
    struct bucket *bucket = (struct bucket *)pm_map(path, PAGE);
    for (uint64_t key = 10; key < 12; key++) {
        struct slot *slot = &bucket->slots[find(bucket, key)];
        REQUIRE(slot->low == ~slot->high, "key %lu has the value %#lx, %#lx", key, slot->low, slot->high);
    }
}

APP(setup, run, recover, NULL)
