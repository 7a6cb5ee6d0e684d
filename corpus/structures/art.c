// An adaptive radix tree: a node has room for 4 children, then 16, then 256. A node that is full is copied to a larger one, to
// which its parent is switched.
//
// In the two smaller kinds a child is there if its index is below the count and its link is not 0; a removed child's place
// can be taken by the same byte again.
//
#include "kv.h"

#define MAGIC 0x747261u
#define DEPTH 4 // bytes of a key
#define HEAP (1u << 21)

enum type { NODE4 = 1, NODE16, NODE256 };

struct header {
    uint32_t type;
    uint32_t count; // not used by NODE256
};

struct node4 {
    struct header header;
    uint8_t bytes[8];
    uint64_t children[4];
};

struct node16 {
    struct header header;
    uint8_t bytes[16];
    uint64_t children[16];
};

struct node256 {
    struct header header;
    uint64_t children[256];
};

struct leaf {
    uint64_t key;
    uint64_t value, check; // check is derived from the value, so that half a value shows
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t top;  // offset of the top node in the heap
    _Alignas(LINE) char heap[HEAP];
};

static struct root *root;
// What is in use is found out when the tree is opened: each size has its own free list, and the rest is above `heap_top`.
static uint64_t heap_top;
static uint64_t free_lists[LINE][256], free_counts[LINE];

static void *at(uint64_t offset) {
    REQUIRE(offset >= LINE && offset < HEAP && offset % LINE == 0, "a link to %lu", offset);
    return root->heap + offset;
}

static uint64_t lines_of(uint64_t size) {
    return (size + LINE - 1) / LINE;
}

static uint64_t allocate(uint64_t size) {
    uint64_t lines = lines_of(size);
    if (free_counts[lines] > 0)
        return free_lists[lines][--free_counts[lines]];
    uint64_t offset = heap_top;
    heap_top += lines * LINE;
    REQUIRE(heap_top <= HEAP, "the file is full");
    return offset;
}

static void release(uint64_t offset, uint64_t size) {
    uint64_t lines = lines_of(size);
    if (free_counts[lines] < 256)
        free_lists[lines][free_counts[lines]++] = offset;
}

static uint64_t size_of(const struct header *header) {
    switch (header->type) {
    case NODE4: return sizeof(struct node4);
    case NODE16: return sizeof(struct node16);
    case NODE256: return sizeof(struct node256);
    }
    REQUIRE(false, "a node of type %u", header->type);
    return 0;
}

// Keys spread over few bytes of each digit, so that all kinds of nodes come to be.
static uint8_t byte_of(uint64_t key, int depth) {
    switch (depth) {
    case 0: return 'k';
    case 1: return (uint8_t)(key % 8 == 0 ? 'b' : 'a');
    case 2: return (uint8_t)(mix(key) % 24);
    default: return (uint8_t)key;
    }
}

static uint64_t *child_slots(struct header *header) {
    switch (header->type) {
    case NODE4: return ((struct node4 *)header)->children;
    case NODE16: return ((struct node16 *)header)->children;
    default: return ((struct node256 *)header)->children;
    }
}

static uint8_t *child_bytes(struct header *header) {
    return header->type == NODE4 ? ((struct node4 *)header)->bytes : ((struct node16 *)header)->bytes;
}

static uint32_t capacity(const struct header *header) {
    return header->type == NODE4 ? 4 : header->type == NODE16 ? 16 : 256;
}

// The place of the child for this byte, whether there is a child or was one; NULL if there was none.
static uint64_t *find_child(struct header *header, uint8_t byte) {
    uint64_t *children = child_slots(header);
    if (header->type == NODE256)
        return &children[byte];
    REQUIRE(header->count <= capacity(header), "a node of %u children", header->count);
    for (uint32_t i = 0; i < header->count; i++)
        if (child_bytes(header)[i] == byte)
            return &children[i];
    return NULL;
}

static void set_link(uint64_t *link, uint64_t to) {
    *link = to;
    pm_persist(link, sizeof *link);
}

static uint64_t make_leaf(uint64_t key, uint64_t value) {
    uint64_t offset = allocate(sizeof(struct leaf));
    struct leaf *leaf = (struct leaf *)at(offset);
    leaf->key = key; //~[BUG_LEAF_ORDER] crash-order|crash-durability
    leaf->value = value; //~[BUG_LEAF_ORDER] crash-order|crash-durability
    leaf->check = mix(value); //~[BUG_LEAF_ORDER] crash-order|crash-durability
#ifndef BUG_LEAF_ORDER
    pm_persist(leaf, sizeof *leaf);
#endif
    return offset;
}

// Appends a child to a node with room for it.
static void append(struct header *header, uint8_t byte, uint64_t child) {
    uint64_t *children = child_slots(header);
    uint32_t i = header->count;
#ifdef BUG_APPEND_ORDER
    header->count = i + 1;
    pm_persist(&header->count, sizeof header->count);
    children[i] = child;
    child_bytes(header)[i] = byte; //~[BUG_APPEND_ORDER] crash-order|crash-atomicity
    pm_persist(header, size_of(header));
#else
    children[i] = child;
    child_bytes(header)[i] = byte;
    pm_persist(header, size_of(header));
    header->count = i + 1;
    pm_persist(&header->count, sizeof header->count);
#endif
}

// A larger copy of the node that also has the new child; without children that were removed. Persistent, with a fence.
static uint64_t grow(struct header *header, uint8_t byte, uint64_t child) {
    uint32_t live = 0;
    for (uint32_t i = 0; i < header->count; i++)
        live += child_slots(header)[i] != 0;
    enum type type = live < 4 ? NODE4 : live < 16 ? NODE16 : NODE256;
    struct header model = {type, 0};
    uint64_t offset = allocate(size_of(&model));
    struct header *copy = (struct header *)at(offset);
    memset(copy, 0, size_of(&model));
    *copy = model;
    for (uint32_t i = 0; i <= header->count; i++) {
        uint8_t its_byte = i < header->count ? child_bytes(header)[i] : byte;
        uint64_t its_child = i < header->count ? child_slots(header)[i] : child;
        if (its_child == 0)
            continue;
        if (type == NODE256) {
            child_slots(copy)[its_byte] = its_child; //~[BUG_GROW_FLUSH] crash-order|crash-durability
        } else {
            child_bytes(copy)[copy->count] = its_byte;
            child_slots(copy)[copy->count++] = its_child; //~[BUG_GROW_ORDER] crash-order|crash-durability
            //~^[BUG_GROW_FLUSH] crash-order|crash-durability
        }
    }
#ifdef BUG_GROW_FLUSH
    pm_persist(copy, sizeof(struct node4)); // the size of the old one
#elif !defined(BUG_GROW_ORDER)
    pm_persist(copy, size_of(copy));
#endif
    return offset;
}

static uint64_t make_chain(uint64_t key, int depth, uint64_t leaf) {
    uint64_t below = leaf;
    for (int d = DEPTH - 1; d >= depth; d--) {
        uint64_t offset = allocate(sizeof(struct node4));
        struct node4 *node = (struct node4 *)at(offset);
        memset(node, 0, sizeof *node);
        node->header.type = NODE4;
        node->header.count = 1;
        node->bytes[0] = byte_of(key, d);
        node->children[0] = below;
        pm_persist(node, sizeof *node);
        below = offset;
    }
    return below;
}

static void kv_insert(uint64_t key, uint64_t value) {
    uint64_t leaf = make_leaf(key, value);
    uint64_t *link = &root->top;
    for (int depth = 0; depth < DEPTH; depth++) {
        struct header *node = (struct header *)at(*link);
        uint8_t byte = byte_of(key, depth);
        uint64_t *child = find_child(node, byte);
        if (child && *child != 0) {
            link = child;
            continue;
        }
        uint64_t below = make_chain(key, depth + 1, leaf);
        if (child) {
            set_link(child, below);
        } else if (node->count < capacity(node)) {
            append(node, byte, below);
        } else {
            uint64_t old = *link;
            set_link(link, grow(node, byte, below));
#ifdef BUG_GROW_ORDER
            pm_persist(at(*link), size_of((struct header *)at(*link)));
#endif
            release(old, size_of(node));
        }
        break;
    }
#ifdef BUG_LEAF_ORDER
    pm_persist(at(leaf), sizeof(struct leaf));
#endif
}

// The link to the key's leaf; NULL if there is none.
static uint64_t *find(uint64_t key) {
    uint64_t *link = &root->top;
    for (int depth = 0; depth < DEPTH; depth++) {
        link = find_child((struct header *)at(*link), byte_of(key, depth));
        if (!link || *link == 0)
            return NULL;
    }
    return link;
}

static void kv_update(uint64_t key, uint64_t value) {
    uint64_t *link = find(key);
#ifdef BUG_UPDATE_IN_PLACE
    struct leaf *leaf = (struct leaf *)at(*link);
    leaf->value = value;
    leaf->check = mix(value); //~[BUG_UPDATE_IN_PLACE] crash-atomicity|crash-order
    pm_persist(leaf, sizeof *leaf);
#else
    uint64_t old = *link;
    uint64_t leaf = make_leaf(key, value);
    set_link(link, leaf);
#ifdef BUG_LEAF_ORDER
    pm_persist(at(leaf), sizeof(struct leaf));
#endif
    release(old, sizeof(struct leaf));
#endif
}

static void kv_remove(uint64_t key) {
    uint64_t *link = find(key);
    uint64_t old = *link;
    set_link(link, 0);
    release(old, sizeof(struct leaf));
}

static uint64_t kv_get(uint64_t key) {
    uint64_t *link = find(key);
    if (!link)
        return 0;
    struct leaf *leaf = (struct leaf *)at(*link);
    REQUIRE(leaf->key == key, "the leaf of key %lu has key %lu", key, leaf->key);
    REQUIRE(leaf->check == mix(leaf->value), "the value of key %lu is torn", key);
    return leaf->value;
}

static void reach(uint64_t offset, uint64_t size) {
    uint64_t end = offset + lines_of(size) * LINE;
    heap_top = end > heap_top ? end : heap_top;
}

// Every leaf is where its key says, and no byte is there twice; the number of leaves.
static uint64_t walk(uint64_t offset, int depth) {
    if (depth == DEPTH) {
        struct leaf *leaf = (struct leaf *)at(offset);
        reach(offset, sizeof *leaf);
        REQUIRE(leaf->check == mix(leaf->value), "the value of key %lu is torn", leaf->key);
        return 1;
    }
    struct header *node = (struct header *)at(offset);
    uint64_t leaves = 0;
    reach(offset, size_of(node));
    uint32_t count = node->type == NODE256 ? 256 : node->count;
    REQUIRE(count <= capacity(node), "a node of %u children", count);
    bool seen[256] = {false};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t child = child_slots(node)[i];
        if (node->type != NODE256) {
            REQUIRE(!seen[child_bytes(node)[i]], "two children for byte %u", child_bytes(node)[i]);
            seen[child_bytes(node)[i]] = true;
        }
        if (child != 0)
            leaves += walk(child, depth + 1);
    }
    return leaves;
}

static uint64_t kv_check(void) {
    return walk(root->top, 0);
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    heap_top = LINE;
    if (root->magic == MAGIC) {
        walk(root->top, 0);
        return true;
    }
    if (!create)
        return false;
    uint64_t offset = allocate(sizeof(struct node4));
    struct node4 *top = (struct node4 *)at(offset);
    memset(top, 0, sizeof *top);
    top->header.type = NODE4;
    pm_persist(top, sizeof *top);
    set_link(&root->top, offset);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
