// A radix tree with path compression, in the manner of WORT: a node has sixteen children, one for each value of half a byte, and a
// header with the half-bytes that all keys below have in common. Where a key differs within them, the node gets a new parent.
//
// Parent and header cannot change at once. A header is one word that also says at which depth its node is; recovery finds the nodes
// whose header is not yet that of their place, and shortens it.
#include "../structures/kv.h"

#define MAGIC 0x74726f77u
#define DIGITS 7 // of a key
#define NODES 512
#define LEAVES 1024

struct header {
    uint8_t depth;  // of the first digit in common
    uint8_t length; // how many there are
    uint8_t digits[DIGITS - 1];
};

struct node {
#ifdef BUG_HEADER_PAIR
    _Alignas(LINE) volatile uint64_t header, digits;
#else
    _Alignas(LINE) uint64_t header;
#endif
    uint64_t children[16]; // node + 1, or LEAF and the leaf; 0: none
};

struct leaf {
    _Alignas(LINE) uint64_t key;
    uint64_t value, check; // check is derived from the value, so that half a value shows
};

#define LEAF (1ull << 32)

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t top; // a link
    struct node nodes[NODES];
    struct leaf leaves[LEAVES];
};

static struct root *root;
static bool node_used[NODES], leaf_used[LEAVES];
static uint64_t node_hint, leaf_hint;

static struct node *node_at(uint64_t link) {
    REQUIRE(link >= 1 && link <= NODES, "a link to node %lu", link);
    return &root->nodes[link - 1];
}

static struct leaf *leaf_at(uint64_t link) {
    REQUIRE((link & LEAF) && (link ^ LEAF) < LEAVES, "a link to leaf %lu", link);
    return &root->leaves[link ^ LEAF];
}

// Few bits to a digit, so that keys have many in common: all nine bits of a key in seven digits.
static uint8_t digit(uint64_t key, unsigned i) {
    return i < DIGITS - 1 ? key >> (8 - i) & 1 : key & 7;
}

static struct header header_of(const struct node *node) {
    struct header header;
#ifdef BUG_HEADER_PAIR
    uint64_t word = (node->header & 0xffff) | node->digits << 16;
#else
    uint64_t word = node->header;
#endif
    memcpy(&header, &word, sizeof header);
    REQUIRE(header.depth + header.length < DIGITS, "a node of %u digits at depth %u", header.length, header.depth);
    return header;
}

static void set_header(struct node *node, struct header header) {
    uint64_t word;
    memcpy(&word, &header, sizeof word);
#ifdef BUG_HEADER_PAIR
    node->header = word & 0xffff; //~[BUG_HEADER_PAIR] crash-atomicity|crash-order|crash-durability
    node->digits = word >> 16; //~[BUG_HEADER_PAIR] crash-atomicity|crash-order|crash-durability
#else
    node->header = word; //~[BUG_SPLIT_RECOVERY] crash-atomicity|crash-order|crash-durability
#endif
    pm_flush(node, 2 * sizeof(uint64_t));
}

static void set_link(uint64_t *link, uint64_t to) {
    *link = to;
    pm_persist(link, sizeof *link);
}

static uint64_t make_leaf(uint64_t key, uint64_t value) {
    uint64_t index = take_slot(leaf_used, LEAVES, &leaf_hint);
    struct leaf *leaf = &root->leaves[index];
    leaf->key = key; //~[BUG_LEAF_ORDER] crash-order
    leaf->value = value; //~[BUG_LEAF_ORDER] crash-order
    leaf->check = mix(value); //~[BUG_LEAF_ORDER] crash-order
    pm_flush(leaf, sizeof *leaf);
#ifndef BUG_LEAF_ORDER
    PM_SFENCE();
#endif
    return LEAF | index;
}

static void release_leaf(uint64_t link) {
    leaf_hint = link ^ LEAF;
    leaf_used[leaf_hint] = false;
}

// A node at `depth` for keys that have `length` digits in common with this one from there on. Not yet durable.
static uint64_t make_node(uint64_t key, unsigned depth, unsigned length) {
    uint64_t index = take_slot(node_used, NODES, &node_hint);
    struct node *node = &root->nodes[index];
    struct header header = {(uint8_t)depth, (uint8_t)length, {0}};
    for (unsigned i = 0; i < length; i++)
        header.digits[i] = digit(key, depth + i);
    memset(node->children, 0, sizeof node->children); //~[BUG_PARENT_FLUSH] crash-order|crash-durability
    set_header(node, header);
    return index + 1;
}

static void flush_node(uint64_t link) {
#ifdef BUG_PARENT_FLUSH
    pm_persist(node_at(link), LINE); // without the children in the other lines
#else
    pm_persist(node_at(link), sizeof(struct node));
#endif
}

// How many digits of the header the key has.
static unsigned common(struct header header, uint64_t key) {
    unsigned i = 0;
    while (i < header.length && header.digits[i] == digit(key, header.depth + i))
        i++;
    return i;
}

static struct header shortened(struct header header, unsigned by) {
    struct header to = {(uint8_t)(header.depth + by), (uint8_t)(header.length - by), {0}};
    memcpy(to.digits, header.digits + by, to.length);
    return to;
}

static void kv_insert(uint64_t key, uint64_t value) {
    uint64_t leaf = make_leaf(key, value), *link = &root->top;
    unsigned depth = 0;
    while (*link != 0 && !(*link & LEAF)) {
        struct node *node = node_at(*link);
        struct header header = header_of(node);
        unsigned same = common(header, key);
        if (same < header.length) {
            uint64_t parent = make_node(key, depth, same);
            node_at(parent)->children[header.digits[same]] = *link; //~[BUG_PARENT_FLUSH] crash-order|crash-durability
            node_at(parent)->children[digit(key, depth + same)] = leaf; //~[BUG_PARENT_FLUSH] crash-order|crash-durability
            flush_node(parent);
#ifdef BUG_SPLIT_ORDER
            set_header(node, shortened(header, same + 1));
            PM_SFENCE();
            set_link(link, parent); //~[BUG_SPLIT_ORDER] crash-order|crash-atomicity|crash-durability
#else
            set_link(link, parent);
            set_header(node, shortened(header, same + 1)); //~[BUG_SPLIT_RECOVERY] crash-atomicity|crash-order|crash-durability
            PM_SFENCE();
#endif
            return;
        }
        depth += header.length;
        link = &node->children[digit(key, depth++)];
    }
    if (*link != 0) {
        uint64_t other = leaf_at(*link)->key;
        unsigned same = 0;
        while (digit(key, depth + same) == digit(other, depth + same))
            same++;
        REQUIRE(depth + same < DIGITS, "two keys with the same digits");
        uint64_t parent = make_node(key, depth, same);
        node_at(parent)->children[digit(other, depth + same)] = *link; //~[BUG_PARENT_FLUSH] crash-order|crash-durability
        node_at(parent)->children[digit(key, depth + same)] = leaf; //~[BUG_PARENT_FLUSH] crash-order|crash-durability
        flush_node(parent);
        set_link(link, parent);
        return;
    }
    set_link(link, leaf);
}

// The link to the key's leaf; NULL if there is none.
static uint64_t *find(uint64_t key) {
    uint64_t *link = &root->top;
    unsigned depth = 0;
    while (*link != 0 && !(*link & LEAF)) {
        struct header header = header_of(node_at(*link));
        if (common(header, key) < header.length)
            return NULL;
        depth += header.length;
        REQUIRE(depth < DIGITS, "a path of more than %d digits", DIGITS);
        link = &node_at(*link)->children[digit(key, depth++)];
    }
    return *link != 0 && leaf_at(*link)->key == key ? link : NULL;
}

static void kv_update(uint64_t key, uint64_t value) {
    uint64_t *link = find(key), old = *link;
    set_link(link, make_leaf(key, value));
    release_leaf(old);
}

static void kv_remove(uint64_t key) {
    uint64_t *link = find(key), old = *link;
#ifdef BUG_REMOVE_FLUSH
    *link = 0; //~[BUG_REMOVE_FLUSH] crash-order|crash-durability|crash-atomicity
#else
    set_link(link, 0);
#endif
    release_leaf(old);
}

static uint64_t kv_get(uint64_t key) {
    uint64_t *link = find(key);
    if (!link)
        return 0;
    struct leaf *leaf = leaf_at(*link);
    REQUIRE(leaf->check == mix(leaf->value), "the value of key %lu is torn", key);
    return leaf->value;
}

// Marks what is in use, and gives each node the header of its place; the number of leaves.
static uint64_t recover(uint64_t link, unsigned depth) {
    if (link == 0)
        return 0;
    if (link & LEAF) {
        (void)leaf_at(link);
        leaf_used[link ^ LEAF] = true;
        return 1;
    }
    struct node *node = node_at(link);
    node_used[link - 1] = true;
    struct header header = header_of(node);
#ifndef BUG_SPLIT_RECOVERY
    if (header.depth < depth) {
        REQUIRE(header.depth + header.length >= depth, "a node for depth %u at depth %u", header.depth, depth);
        header = shortened(header, depth - header.depth);
        set_header(node, header);
        PM_SFENCE();
    }
#endif
    uint64_t leaves = 0;
    for (unsigned i = 0; i < 16; i++)
        leaves += recover(node->children[i], depth + header.length + 1);
    return leaves;
}

static uint64_t kv_check(void) {
    return recover(root->top, 0);
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover(root->top, 0);
        return true;
    }
    if (!create)
        return false;
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
