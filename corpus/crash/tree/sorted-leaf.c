// setup: yes
// Inserting into a sorted leaf shifts its entries: until the last store one key is missing or there twice.
#include "../app.h"

struct leaf {
    _Alignas(LINE) uint64_t keys[6]; // 0: none
    uint64_t unused;
};

static void insert(struct leaf *leaf, uint64_t key) {
    int i = 5;
    for (; i > 0 && (leaf->keys[i - 1] == 0 || leaf->keys[i - 1] > key); i--) {
        leaf->keys[i] = leaf->keys[i - 1]; //~ persisted
        PM_BARRIER();
    }
    leaf->keys[i] = key; //~ crash-atomicity
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
    return leaf->keys[rank];
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
