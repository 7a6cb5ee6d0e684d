// A crit-bit tree: an inner node says at which bit the keys below it first differ. Leaves and inner nodes come from a persistent
// free list; what an operation takes from it or leaves behind when it is interrupted is lost, but never in two places.
//
// An insertion makes a leaf and an inner node and links them by one store; a removal unlinks both by one store.
#include "../structures/kv.h"

#define MAGIC 0x746962746972u
#define CELLS 4096

struct leaf {
    uint64_t key, value, check; // check is derived from the value, so that half a value shows
};

struct inner {
    uint64_t bit;
    uint64_t children[2]; // links: 2 * cell, and 1 more for a leaf; 0 is none
};

struct cell {
    _Alignas(LINE) union {
        struct leaf leaf;
        struct inner inner;
        uint64_t next; // in the free list
    } as;
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t top;
    _Alignas(LINE) uint64_t free_list; // cell, or 0
    _Alignas(LINE) uint64_t fresh;     // cells from here on were never used
    struct cell cells[CELLS];
};

static struct root *root;

static void store_durably(uint64_t *at, uint64_t value) {
    *at = value;
    pm_persist(at, sizeof *at);
}

static struct cell *cell_at(uint64_t cell) {
    REQUIRE(cell != 0 && cell < CELLS, "cell %lu", cell);
    return &root->cells[cell];
}

static uint64_t allocate(void) {
    uint64_t cell = root->free_list;
    if (cell != 0) {
        store_durably(&root->free_list, cell_at(cell)->as.next);
        return cell;
    }
    cell = root->fresh;
    REQUIRE(cell < CELLS, "the file is full");
    store_durably(&root->fresh, cell + 1);
    return cell;
}

static void release(uint64_t cell) {
    store_durably(&cell_at(cell)->as.next, root->free_list);
    store_durably(&root->free_list, cell);
}

static uint64_t make_leaf(uint64_t key, uint64_t value) {
    uint64_t cell = allocate();
    struct leaf *leaf = &cell_at(cell)->as.leaf;
    leaf->key = key; //~[BUG_LEAF_FLUSH] crash-order|crash-durability
    leaf->value = value; //~[BUG_LEAF_FLUSH] crash-order|crash-durability
    leaf->check = mix(value); //~[BUG_LEAF_FLUSH] crash-order|crash-durability
#ifndef BUG_LEAF_FLUSH
    pm_persist(leaf, sizeof *leaf);
#endif
    return 2 * cell + 1;
}

static bool is_leaf(uint64_t link) {
    return link & 1;
}

static struct leaf *leaf_at(uint64_t link) {
    return &cell_at(link / 2)->as.leaf;
}

static struct inner *inner_at(uint64_t link) {
    struct inner *inner = &cell_at(link / 2)->as.inner;
    REQUIRE(inner->bit < 64, "an inner node for bit %lu", inner->bit);
    return inner;
}

// Spread, so that the tree is deep enough.
static uint64_t bits_of(uint64_t key) {
    return mix(key);
}

static int direction(const struct inner *inner, uint64_t key) {
    return bits_of(key) >> (63 - inner->bit) & 1;
}

// The link to the only leaf in which the key may be, and the one above it.
static uint64_t *find(uint64_t key, uint64_t **above) {
    uint64_t *link = &root->top;
    *above = NULL;
    while (*link != 0 && !is_leaf(*link)) {
        *above = link;
        link = &inner_at(*link)->children[direction(inner_at(*link), key)];
    }
    return link;
}

static void kv_insert(uint64_t key, uint64_t value) {
    uint64_t *above, *near = find(key, &above);
    if (*near == 0) {
        store_durably(near, make_leaf(key, value));
        return;
    }
    uint64_t bit = (uint64_t)__builtin_clzll(bits_of(leaf_at(*near)->key) ^ bits_of(key));
    uint64_t *link = &root->top;
    while (!is_leaf(*link) && inner_at(*link)->bit < bit)
        link = &inner_at(*link)->children[direction(inner_at(*link), key)];
    uint64_t cell = allocate(), leaf = make_leaf(key, value);
    struct inner *inner = &cell_at(cell)->as.inner;
    int side = bits_of(key) >> (63 - bit) & 1;
    inner->bit = bit; //~[BUG_INSERT_ORDER] crash-order
    inner->children[side] = leaf; //~[BUG_INSERT_ORDER] crash-order
    inner->children[!side] = *link; //~[BUG_INSERT_ORDER] crash-order
    pm_flush(inner, sizeof *inner);
#ifndef BUG_INSERT_ORDER
    PM_SFENCE();
#endif
    store_durably(link, 2 * cell);
}

static void kv_update(uint64_t key, uint64_t value) {
    uint64_t *above, *link = find(key, &above);
#ifdef BUG_UPDATE_IN_PLACE
    struct leaf *leaf = leaf_at(*link);
    leaf->value = value;
    PM_BARRIER();
    leaf->check = mix(value); //~[BUG_UPDATE_IN_PLACE] crash-atomicity|crash-order|crash-durability
    pm_persist(leaf, sizeof *leaf);
#else
    uint64_t old = *link;
    store_durably(link, make_leaf(key, value));
    release(old / 2);
#endif
}

static void kv_remove(uint64_t key) {
    uint64_t *above, *link = find(key, &above), old_leaf = *link;
    if (!above) {
        store_durably(link, 0);
        release(old_leaf / 2);
        return;
    }
    uint64_t old_inner = *above;
    struct inner *inner = inner_at(old_inner);
    uint64_t other = inner->children[&inner->children[0] == link];
#if defined(BUG_FREE_FIRST)
    release(old_leaf / 2); // is linked, and free
    store_durably(above, other); //~[BUG_FREE_FIRST] crash-order|crash-atomicity|crash-durability
    release(old_inner / 2);
#elif defined(BUG_REMOVE_FLUSH)
    *above = other; //~[BUG_REMOVE_FLUSH] crash-order|crash-durability|crash-atomicity
    release(old_inner / 2);
    release(old_leaf / 2);
#else
    store_durably(above, other);
    release(old_inner / 2);
    release(old_leaf / 2);
#endif
}

static uint64_t kv_get(uint64_t key) {
    uint64_t *above, *link = find(key, &above);
    if (*link == 0 || leaf_at(*link)->key != key)
        return 0;
    struct leaf *leaf = leaf_at(*link);
    REQUIRE(leaf->check == mix(leaf->value), "the value of key %lu is torn", key);
    return leaf->value;
}

static uint64_t walk(uint64_t link, uint64_t bits) {
    if (link == 0)
        return 0;
    if (is_leaf(link))
        return kv_get(leaf_at(link)->key) != 0;
    struct inner *inner = inner_at(link);
    REQUIRE(inner->bit >= bits, "bit %lu below bit %lu", inner->bit, bits);
    return walk(inner->children[0], inner->bit + 1) + walk(inner->children[1], inner->bit + 1);
}

static uint64_t kv_check(void) {
    return walk(root->top, 0);
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC)
        return true;
    if (!create)
        return false;
    store_durably(&root->fresh, 1);
    store_durably(&root->magic, MAGIC);
    return true;
}
