// setup: yes
// As root.c, but the copy is persistent before the root is switched to it.
#include "../app.h"

struct node {
    _Alignas(LINE) uint64_t left; // left + right is always 10
    uint64_t right;
};

struct tree {
    _Alignas(LINE) uint64_t root;
    struct node copies[4];
};

static void move_one(struct tree *tree) {
    struct node *old = &tree->copies[tree->root], *copy = &tree->copies[tree->root + 1];
    *copy = (struct node){.left = old->left - 1, .right = old->right + 1};
    pm_flush(copy, sizeof *copy);
    PM_SFENCE();
    tree->root++;
    pm_persist(&tree->root, sizeof tree->root);
}

static void setup(const char *path) {
    struct tree *tree = (struct tree *)pm_map(path, PAGE);
    tree->copies[0].left = 10;
    pm_persist(tree, sizeof *tree);
}

static void run(const char *path) {
    struct tree *tree = (struct tree *)pm_map(path, PAGE);
    move_one(tree);
    move_one(tree);
}

static void recover(const char *path) {
    struct tree *tree = (struct tree *)pm_map(path, PAGE);
    REQUIRE(tree->root < 4, "the root is %lu", tree->root);
    struct node *node = &tree->copies[tree->root];
    REQUIRE(node->right == tree->root && node->left + node->right == 10, "copy %lu holds %lu and %lu", tree->root,
            node->left, node->right);
}

APP(setup, run, recover, NULL)
