// A B-tree in a libpmemobj pool. Every operation is a transaction: what it changes in place is snapshotted first (TX_ADD).
//
// What is removed from an inner node stays as a key without a value (0), until it is inserted again.
#include "../structures/kv.h"
#include <libpmemobj.h>

#define LAYOUT "btree_tx"
#define MOST 5 // items of a node

POBJ_LAYOUT_BEGIN(btree_tx);
POBJ_LAYOUT_ROOT(btree_tx, struct root);
POBJ_LAYOUT_TOID(btree_tx, struct node);
POBJ_LAYOUT_END(btree_tx);

struct item {
    uint64_t key, value;
};

struct node {
    uint64_t count;
    struct item items[MOST];
    TOID(struct node) children[MOST + 1]; // leaves have none
};

struct root {
    TOID(struct node) top;
};

static PMEMobjpool *pool;
static TOID(struct root) root;

static bool is_leaf(TOID(struct node) node) {
    return TOID_IS_NULL(D_RO(node)->children[0]);
}

static uint64_t position(TOID(struct node) node, uint64_t key) {
    REQUIRE(D_RO(node)->count <= MOST, "a node of %lu items", D_RO(node)->count);
    uint64_t i = 0;
    while (i < D_RO(node)->count && D_RO(node)->items[i].key < key)
        i++;
    return i;
}

// The item of the key, whether it has a value or not; NULL if there is none. The node that it is in.
static struct item *find(uint64_t key, TOID(struct node) *in) {
    for (TOID(struct node) node = D_RO(root)->top; !TOID_IS_NULL(node);) {
        uint64_t i = position(node, key);
        *in = node;
        if (i < D_RO(node)->count && D_RO(node)->items[i].key == key)
            return &D_RW(node)->items[i];
        node = D_RO(node)->children[i];
    }
    return NULL;
}

// Makes room at `i`, for an item and for the child after it.
static void shift(struct node *node, uint64_t i) {
    memmove(&node->items[i + 1], &node->items[i], (node->count - i) * sizeof node->items[0]); //~[BUG_INSERT_LOG] crash-order|crash-atomicity|crash-durability
    //~^[BUG_PARENT_LOG] crash-order|crash-atomicity|crash-durability
    memmove(&node->children[i + 2], &node->children[i + 1], (node->count - i) * sizeof node->children[0]); //~[BUG_INSERT_LOG] crash-order|crash-atomicity|crash-durability
    //~^[BUG_PARENT_LOG] crash-order|crash-atomicity|crash-durability
    node->count++; //~[BUG_INSERT_LOG] crash-order|crash-atomicity|crash-durability
    //~^[BUG_PARENT_LOG] crash-order|crash-atomicity|crash-durability
}

// The full child `i` of the node becomes two.
static void split(TOID(struct node) parent, uint64_t i) {
    TOID(struct node) left = D_RO(parent)->children[i], right = TX_ZNEW(struct node);
    uint64_t half = MOST / 2;
#ifndef BUG_SPLIT_LOG
    TX_ADD(left);
#endif
#ifndef BUG_PARENT_LOG
    TX_ADD(parent);
#endif
    struct node *from = D_RW(left), *to = D_RW(right);
    to->count = MOST - half - 1;
    memcpy(to->items, &from->items[half + 1], to->count * sizeof to->items[0]);
    memcpy(to->children, &from->children[half + 1], (to->count + 1) * sizeof to->children[0]);
    from->count = half; //~[BUG_SPLIT_LOG] crash-order|crash-atomicity|crash-durability
    shift(D_RW(parent), i);
    D_RW(parent)->items[i] = from->items[half]; //~[BUG_PARENT_LOG] crash-order|crash-atomicity|crash-durability
    D_RW(parent)->children[i + 1] = right; //~[BUG_PARENT_LOG] crash-order|crash-atomicity|crash-durability
#if defined(BUG_SPLIT_LOG)
    pmemobj_flush(pool, from, sizeof *from);
#elif defined(BUG_PARENT_LOG)
    pmemobj_flush(pool, D_RW(parent), sizeof *from);
#endif
}

static void insert(uint64_t key, uint64_t value) {
    if (D_RO(D_RO(root)->top)->count == MOST) {
        TOID(struct node) top = TX_ZNEW(struct node);
        D_RW(top)->children[0] = D_RO(root)->top;
#ifdef BUG_ROOT_LOG
        D_RW(root)->top = top; //~[BUG_ROOT_LOG] crash-order|crash-atomicity|crash-durability
        pmemobj_persist(pool, &D_RW(root)->top, sizeof top);
#else
        TX_ADD(root);
        D_RW(root)->top = top;
#endif
        split(top, 0);
    }
    TOID(struct node) node = D_RO(root)->top;
    while (!is_leaf(node)) {
        uint64_t i = position(node, key);
        if (D_RO(D_RO(node)->children[i])->count == MOST) {
            split(node, i);
            i = position(node, key);
        }
        node = D_RO(node)->children[i];
    }
#ifndef BUG_INSERT_LOG
    TX_ADD(node);
#endif
    uint64_t i = position(node, key);
    shift(D_RW(node), i);
    D_RW(node)->items[i] = (struct item){key, value}; //~[BUG_INSERT_LOG] crash-order|crash-atomicity|crash-durability
#ifdef BUG_INSERT_LOG
    pmemobj_flush(pool, D_RW(node), sizeof(struct node));
#endif
}

static void kv_update(uint64_t key, uint64_t value) {
    TOID(struct node) node;
    struct item *item = find(key, &node);
#ifdef BUG_UPDATE_PERSIST
    item->value = value; //~[BUG_UPDATE_PERSIST] crash-order|crash-atomicity|crash-durability
#else
    TX_BEGIN(pool) {
        TX_ADD_DIRECT(&item->value);
        item->value = value;
    } TX_ONABORT {
        abort();
    } TX_END
#endif
}

static void kv_insert(uint64_t key, uint64_t value) {
    TOID(struct node) node;
    if (find(key, &node)) {
        kv_update(key, value);
        return;
    }
    TX_BEGIN(pool) {
        insert(key, value);
    } TX_ONABORT {
        abort();
    } TX_END
}

static void kv_remove(uint64_t key) {
    TOID(struct node) node;
    struct item *item = find(key, &node);
    if (!is_leaf(node)) {
        kv_update(key, 0);
        return;
    }
    uint64_t i = (uint64_t)(item - D_RW(node)->items), count = D_RO(node)->count;
    TX_BEGIN(pool) {
#ifdef BUG_REMOVE_LOG
        TX_ADD_FIELD(node, count); // without the items
        memmove(item, item + 1, (count - i - 1) * sizeof *item); //~[BUG_REMOVE_LOG] crash-order|crash-atomicity|crash-durability
        pmemobj_flush(pool, D_RW(node), sizeof(struct node));
#else
        TX_ADD(node);
        memmove(item, item + 1, (count - i - 1) * sizeof *item);
#endif
        D_RW(node)->count = count - 1;
    } TX_ONABORT {
        abort();
    } TX_END
}

static uint64_t kv_get(uint64_t key) {
    TOID(struct node) node;
    struct item *item = find(key, &node);
    return item ? item->value : 0;
}

static uint64_t walk(TOID(struct node) node, uint64_t low, uint64_t high) {
    uint64_t entries = 0;
    if (TOID_IS_NULL(node))
        return 0;
    for (uint64_t i = 0; i <= D_RO(node)->count; i++) {
        uint64_t key = i < D_RO(node)->count ? D_RO(node)->items[i].key : high;
        REQUIRE(key > low || (i == D_RO(node)->count && key >= low), "key %lu after key %lu", key, low);
        entries += walk(D_RO(node)->children[i], low, key);
        entries += i < D_RO(node)->count && D_RO(node)->items[i].value != 0;
        low = key;
    }
    return entries;
}

static uint64_t kv_check(void) {
    return walk(D_RO(root)->top, 0, UINT64_MAX);
}

static bool kv_open(const char *path, bool create) {
    pool = create && access(path, F_OK) != 0 ? pmemobj_create(path, LAYOUT, PMEMOBJ_MIN_POOL, 0600) : pmemobj_open(path, LAYOUT);
    REQUIRE(pool, "%s: %s", path, pmemobj_errormsg());
    root = POBJ_ROOT(pool, struct root);
    if (!TOID_IS_NULL(D_RO(root)->top))
        return true;
    if (!create)
        return false;
    TX_BEGIN(pool) {
        TX_ADD(root);
        D_RW(root)->top = TX_ZNEW(struct node);
    } TX_ONABORT {
        abort();
    } TX_END
    return true;
}
