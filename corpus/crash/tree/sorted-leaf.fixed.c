// setup: yes
// As sorted-leaf.c, but keys stay where they are; a permutation of eight bytes says their order and changes at once.
#include "../app.h"

struct leaf {
    _Alignas(LINE) uint64_t keys[6]; // 0: none
    uint64_t permutation; // byte i: 1 + the place of the i-th key; 0: the end
};

static void insert(struct leaf *leaf, uint64_t key) {
    int place = 0, rank = 0;
    while (leaf->keys[place] != 0)
        place++;
    leaf->keys[place] = key;
    pm_persist(leaf, sizeof *leaf);
    while (rank < place && leaf->keys[(leaf->permutation >> 8 * rank & 0xff) - 1] < key)
        rank++;
    uint64_t below = leaf->permutation & ((1ull << 8 * rank) - 1);
    leaf->permutation = below | (place + 1ull) << 8 * rank | (leaf->permutation ^ below) << 8;
    pm_persist(leaf, sizeof *leaf);
}

static void setup(const char *path) {
    struct leaf *leaf = (struct leaf *)pm_map(path, PAGE);
    insert(leaf, 10);
    insert(leaf, 30);
}

static void run(const char *path) {
    insert((struct leaf *)pm_map(path, PAGE), 20);
}

static uint64_t key_at(struct leaf *leaf, int rank) {
    uint64_t place = leaf->permutation >> 8 * rank & 0xff;
    return place == 0 ? 0 : leaf->keys[place - 1];
}

static void recover(const char *path) {
    struct leaf *leaf = (struct leaf *)pm_map(path, PAGE);
    uint64_t last = 0, sum = 0;
    for (int rank = 0; rank < 6 && key_at(leaf, rank) != 0; rank++) {
        REQUIRE(key_at(leaf, rank) > last, "key %lu comes after key %lu", key_at(leaf, rank), last);
        last = key_at(leaf, rank);
        sum += last;
    }
    REQUIRE(sum == 40 || sum == 60, "the keys are not those that were put in");
}

APP(setup, run, recover, NULL)
