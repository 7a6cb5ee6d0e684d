// setup: yes
// A B+tree leaf is split without a log: the old leaf shrinks before the parent leads to the new one, so keys are lost.
#include "../app.h"

struct leaf {
    _Alignas(LINE) uint64_t count;
    uint64_t keys[4];
};

struct tree {
    _Alignas(LINE) uint64_t separator; // keys from here on are in the right leaf; UINT64_MAX: there is none
    struct leaf left, right;
};

static void split(struct tree *tree) {
    uint64_t half = tree->left.count / 2;
    for (uint64_t i = half; i < tree->left.count; i++)
        tree->right.keys[i - half] = tree->left.keys[i];
    tree->right.count = tree->left.count - half;
    pm_persist(&tree->right, sizeof tree->right);
    tree->left.count = half; //~ persisted
    pm_persist(&tree->left, sizeof tree->left);
    tree->separator = tree->right.keys[0]; //~ crash-order
    pm_persist(&tree->separator, sizeof tree->separator);
}

static void setup(const char *path) {
    struct tree *tree = (struct tree *)pm_map(path, PAGE);
    *tree = (struct tree){.separator = UINT64_MAX, .left = {.count = 4, .keys = {10, 20, 30, 40}}};
    pm_persist(tree, sizeof *tree);
}

static void run(const char *path) {
    split((struct tree *)pm_map(path, PAGE));
}

static int contains(struct tree *tree, uint64_t key) {
    struct leaf *leaf = key < tree->separator ? &tree->left : &tree->right;
    for (uint64_t i = 0; i < leaf->count; i++) {
        if (leaf->keys[i] == key)
            return 1;
    }
    return 0;
}

static void recover(const char *path) {
    struct tree *tree = (struct tree *)pm_map(path, PAGE);
    while (tree->left.count > 0 && tree->left.keys[tree->left.count - 1] >= tree->separator) {
        tree->left.count--;
        pm_persist(&tree->left, sizeof tree->left);
    }
    for (uint64_t key = 10; key <= 40; key += 10)
        REQUIRE(contains(tree, key), "key %lu is lost", key);
    uint64_t right = tree->separator == UINT64_MAX ? 0 : tree->right.count;
    REQUIRE(tree->left.count + right == 4, "the leaves hold %lu and %lu keys", tree->left.count, right);
}

APP(setup, run, recover, NULL)
