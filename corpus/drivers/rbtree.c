// A red-black tree. An operation is a transaction with an undo log: the old content of a node is logged and durable before the node is
// changed, all changes are durable before the log is emptied, and opening rolls back what was under way.
#include "../structures/kv.h"

#define MAGIC 0x656572746272u
#define NODES 320
#define LOGGED 64

struct node {
    _Alignas(LINE) uint64_t key;
    uint64_t value;
    uint64_t red;
    uint64_t parent;
    uint64_t child[2]; // node 0 is the leaf below all, and black
};

struct log_entry {
    _Alignas(LINE) uint64_t node;
    struct node old;
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t top;
    uint64_t free_list; // through child[0]; in the line of top, and logged with it
    _Alignas(LINE) uint64_t logged;  // entries of the log that count
    _Alignas(LINE) uint64_t old_top; // of the transaction under way
    uint64_t old_free_list;
    struct log_entry log[LOGGED];
    struct node nodes[NODES];
};

static struct root *root;

static struct node *at(uint64_t node) {
    REQUIRE(node < NODES, "a link to node %lu", node);
    return &root->nodes[node];
}

static void set_logged(uint64_t count) {
    root->logged = count;
    pm_persist(&root->logged, sizeof root->logged);
}

// The first entry of the log is for the root's pointers, and for nothing else.
static void begin(void) {
    root->old_top = root->top; //~[BUG_ROOT_LOG] crash-order|crash-atomicity|crash-durability
    root->old_free_list = root->free_list; //~[BUG_ROOT_LOG] crash-order|crash-atomicity|crash-durability
#ifndef BUG_ROOT_LOG
    pm_persist(&root->old_top, 2 * sizeof(uint64_t));
#endif
    set_logged(1);
}

// Before a node is changed.
static void add(uint64_t node) {
    uint64_t count = root->logged;
    for (uint64_t i = 1; i < count; i++)
        if (root->log[i].node == node)
            return;
    REQUIRE(count < LOGGED, "the log is full");
    root->log[count].node = node; //~[BUG_LOG_ORDER] crash-order|crash-atomicity
    root->log[count].old = *at(node); //~[BUG_LOG_ORDER] crash-order|crash-atomicity
    pm_flush(&root->log[count], sizeof root->log[count]);
#ifndef BUG_LOG_ORDER
    PM_SFENCE();
#endif
    set_logged(count + 1);
}

static void commit(void) {
#ifdef BUG_COMMIT_ORDER
    uint64_t count = root->logged;
    set_logged(0); //~[BUG_COMMIT_ORDER] crash-order|crash-atomicity
    for (uint64_t i = 1; i < count; i++)
#else
    for (uint64_t i = 1; i < root->logged; i++)
#endif
        pm_flush(at(root->log[i].node), sizeof(struct node));
    pm_persist(&root->top, 2 * sizeof(uint64_t));
#ifndef BUG_COMMIT_ORDER
    set_logged(0);
#endif
}

static void roll_back(void) {
    REQUIRE(root->logged <= LOGGED, "a log of %lu entries", root->logged);
    for (uint64_t i = root->logged; i-- > 1;) {
        *at(root->log[i].node) = root->log[i].old;
        pm_flush(at(root->log[i].node), sizeof(struct node));
    }
    root->top = root->old_top;
    root->free_list = root->old_free_list;
    pm_persist(&root->top, 2 * sizeof(uint64_t));
    set_logged(0);
}

static int side_of(uint64_t node) {
    return at(at(node)->parent)->child[1] == node;
}

// Puts `node` where `old` is below its parent.
static void replace(uint64_t old, uint64_t node) {
    uint64_t parent = at(old)->parent;
    if (parent == 0) {
        root->top = node;
    } else {
#ifdef BUG_REPLACE_LOG
        at(parent)->child[side_of(old)] = node; //~[BUG_REPLACE_LOG] crash-order|crash-atomicity|crash-durability
        pm_flush(at(parent), sizeof(struct node));
#else
        add(parent);
        at(parent)->child[side_of(old)] = node;
#endif
    }
#ifndef BUG_ROTATE_LOG
    add(node);
#endif
    at(node)->parent = parent; // also of node 0, for the repair after a removal
    //~^[BUG_ROTATE_LOG] crash-order|crash-atomicity|crash-durability
#ifdef BUG_ROTATE_LOG
    pm_flush(at(node), sizeof(struct node));
#endif
}

// The child on `side` comes up; the node goes down to the other side.
static void rotate(uint64_t node, int side) {
    uint64_t up = at(node)->child[side], between = at(up)->child[!side];
    add(node);
#ifndef BUG_ROTATE_LOG
    add(up);
#endif
    replace(node, up);
    at(node)->child[side] = between;
    if (between != 0) {
        add(between);
        at(between)->parent = node;
    }
    at(up)->child[!side] = node; //~[BUG_ROTATE_LOG] crash-order|crash-atomicity|crash-durability
    at(node)->parent = up;
#ifdef BUG_ROTATE_LOG
    pm_flush(at(up), sizeof(struct node));
#endif
}

static void paint(uint64_t node, uint64_t red) {
    if (at(node)->red == red)
        return;
    add(node);
    at(node)->red = red;
}

static uint64_t find(uint64_t key) {
    uint64_t node = root->top;
    while (node != 0 && at(node)->key != key)
        node = at(node)->child[key > at(node)->key];
    return node;
}

static void kv_insert(uint64_t key, uint64_t value) {
    begin();
    uint64_t node = root->free_list, parent = 0;
    REQUIRE(node != 0, "the file is full");
#ifndef BUG_NEW_LOG
    add(node);
#endif
    root->free_list = at(node)->child[0];
    for (uint64_t next = root->top; next != 0; next = at(next)->child[key > at(next)->key])
        parent = next;
    *at(node) = (struct node){key, value, 1, parent, {0, 0}}; //~[BUG_NEW_LOG] crash-order|crash-atomicity|crash-durability
#ifdef BUG_NEW_LOG
    pm_flush(at(node), sizeof(struct node));
#endif
    if (parent == 0) {
        root->top = node;
    } else {
#ifdef BUG_LINK_LOG
        at(parent)->child[key > at(parent)->key] = node; //~[BUG_LINK_LOG] crash-order|crash-atomicity|crash-durability
        pm_flush(at(parent), sizeof(struct node));
#else
        add(parent);
        at(parent)->child[key > at(parent)->key] = node;
#endif
    }
    while (at(at(node)->parent)->red) {
        uint64_t up = at(node)->parent, top = at(up)->parent;
        int side = side_of(up);
        uint64_t uncle = at(top)->child[!side];
        if (at(uncle)->red) {
            paint(up, 0);
            paint(uncle, 0);
            paint(top, 1);
            node = top;
            continue;
        }
        if (side_of(node) != side) {
            rotate(up, !side);
            node = up;
            up = at(node)->parent;
        }
        paint(up, 0);
        paint(top, 1);
        rotate(top, side);
    }
    paint(root->top, 0);
    commit();
}

static void kv_update(uint64_t key, uint64_t value) {
    uint64_t node = find(key);
    at(node)->value = value;
    pm_persist(&at(node)->value, sizeof value);
}

static void repair_black(uint64_t node) {
    while (node != root->top && !at(node)->red) {
        uint64_t up = at(node)->parent;
        int side = at(up)->child[1] == node;
        uint64_t other = at(up)->child[!side];
        if (at(other)->red) {
            paint(other, 0);
            paint(up, 1);
            rotate(up, !side);
            other = at(up)->child[!side];
        }
        if (!at(at(other)->child[0])->red && !at(at(other)->child[1])->red) {
            paint(other, 1);
            node = up;
            continue;
        }
        if (!at(at(other)->child[!side])->red) {
            paint(at(other)->child[side], 0);
            paint(other, 1);
            rotate(other, side);
            other = at(up)->child[!side];
        }
        paint(other, at(up)->red);
        paint(up, 0);
        paint(at(other)->child[!side], 0);
        rotate(up, !side);
        node = root->top;
    }
    paint(node, 0);
}

static void kv_remove(uint64_t key) {
    begin();
    uint64_t node = find(key), gone = node;
    if (at(node)->child[0] != 0 && at(node)->child[1] != 0) {
        // The next key takes its place, and is removed instead.
        gone = at(node)->child[1];
        while (at(gone)->child[0] != 0)
            gone = at(gone)->child[0];
        add(node);
        at(node)->key = at(gone)->key;
        at(node)->value = at(gone)->value;
    }
    uint64_t below = at(gone)->child[at(gone)->child[0] == 0];
    replace(gone, below);
    if (!at(gone)->red)
        repair_black(below);
    add(gone);
    at(gone)->child[0] = root->free_list;
    root->free_list = gone;
    commit();
}

static uint64_t kv_get(uint64_t key) {
    uint64_t node = find(key);
    return node == 0 ? 0 : at(node)->value;
}

// Sorted, no red node below a red one, as many black nodes on each path; the number of nodes.
static uint64_t walk(uint64_t node, uint64_t low, uint64_t high, uint64_t *black) {
    *black = 0;
    if (node == 0)
        return 0;
    struct node *n = at(node);
    REQUIRE(n->key > low && n->key < high, "key %lu is not in its range", n->key);
    uint64_t left, right, nodes = 1;
    for (int side = 0; side < 2; side++)
        if (n->child[side] != 0) {
            REQUIRE(at(n->child[side])->parent == node, "a child of key %lu has another parent", n->key);
            REQUIRE(!n->red || !at(n->child[side])->red, "two red nodes at key %lu", n->key);
        }
    nodes += walk(n->child[0], low, n->key, &left) + walk(n->child[1], n->key, high, &right);
    REQUIRE(left == right, "%lu and %lu black nodes below key %lu", left, right, n->key);
    *black = left + !n->red;
    return nodes;
}

static uint64_t kv_check(void) {
    uint64_t black;
    REQUIRE(!at(0)->red, "the leaf is red");
    return walk(root->top, 0, UINT64_MAX, &black);
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        if (root->logged != 0)
            roll_back();
        return true;
    }
    if (!create)
        return false;
    for (uint64_t i = 1; i < NODES; i++)
        root->nodes[i].child[0] = (i + 1) % NODES;
    root->free_list = 1;
    pm_persist(root, sizeof *root);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
