// A B+tree in the manner of FAST & FAIR: a node's entries are sorted, and an entry is inserted or removed by shifting the others, one
// word at a time. Neither a log nor copies: what a crash leaves half shifted, readers can tell, and recovery completes.
//
// An entry whose pointer is that of its left neighbour does not count; the first entry with the pointer 0 is the end. A node that is split
// gets a right sibling first and loses the upper half of its entries then; a sibling that no parent knows of is found through its neighbour.
#include "../structures/kv.h"

#define MAGIC 0x726961667473u
#define ENTRIES 12 // one of them is the end
#define NODES 256
#define RECORDS 1024
#define NOBODY 1 // the pointer before the first of a leaf

struct entry {
    uint64_t key;
    uint64_t pointer; // leaves: record + 2; inner nodes: node + 2
};

struct node {
    _Alignas(LINE) uint64_t level; // 0: a leaf
    uint64_t low;                  // the least key that may be here
    uint64_t sibling;              // to the right: node + 2, or 0
    uint64_t leftmost;             // inner nodes: the child for keys before those of the entries; leaves: NOBODY
    _Alignas(LINE) volatile struct entry entries[ENTRIES];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t top; // node + 2
    struct node nodes[NODES];
    _Alignas(LINE) uint64_t records[RECORDS]; // the values
};

static struct root *root;
static bool node_used[NODES], record_used[RECORDS];
static uint64_t node_hint, record_hint;

static struct node *node_at(uint64_t pointer) {
    REQUIRE(pointer >= 2 && pointer < NODES + 2, "a pointer to node %lu", pointer);
    return &root->nodes[pointer - 2];
}

static uint64_t *record_at(uint64_t pointer) {
    REQUIRE(pointer >= 2 && pointer < RECORDS + 2, "a pointer to record %lu", pointer);
    return &root->records[pointer - 2];
}

static void store_durably(uint64_t *at, uint64_t value) {
    *at = value;
    pm_persist(at, sizeof *at);
}

static void persist_entry(const struct node *node, unsigned i) {
    pm_persist((const void *)&node->entries[i], sizeof(struct entry));
}

static bool begins_line(unsigned i) {
    return i % (LINE / sizeof(struct entry)) == 0;
}

static uint64_t pointer_before(const struct node *node, unsigned i) {
    return i == 0 ? node->leftmost : node->entries[i - 1].pointer;
}

static bool counts(const struct node *node, unsigned i) {
    return node->entries[i].pointer != pointer_before(node, i);
}

static unsigned count_of(const struct node *node) {
    unsigned count = 0;
    while (node->entries[count].pointer != 0) {
        count++;
        REQUIRE(count < ENTRIES, "a node without an end");
    }
    return count;
}

// Shifts what is from `at` on to the right, and puts the entry there. Each store leaves a node that readers understand.
static void insert_entry(struct node *node, unsigned at, struct entry entry) {
    unsigned count = count_of(node);
    node->entries[count + 1].pointer = 0;
    if (begins_line(count + 1))
        persist_entry(node, count + 1);
    for (unsigned i = count; i > at; i--) {
#ifdef BUG_SHIFT_ORDER
        node->entries[i].key = node->entries[i - 1].key; // of an entry that counts
        node->entries[i].pointer = node->entries[i - 1].pointer; //~[BUG_SHIFT_ORDER] crash-order|crash-atomicity|crash-durability
#else
        node->entries[i].pointer = node->entries[i - 1].pointer; //~[BUG_SHIFT_FLUSH] crash-order|crash-durability|crash-atomicity
        //~^[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
        node->entries[i].key = node->entries[i - 1].key; //~[BUG_SHIFT_FLUSH] crash-order|crash-durability|crash-atomicity
        //~^[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
#endif
        if (begins_line(i))
#ifdef BUG_SHIFT_FLUSH
            pm_flush((const void *)&node->entries[i], sizeof entry);
#else
            persist_entry(node, i);
#endif
    }
    node->entries[at].pointer = pointer_before(node, at); //~[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
    node->entries[at].key = entry.key; //~[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
    node->entries[at].pointer = entry.pointer;
    persist_entry(node, at);
}

// Shifts what is right of `at` to the left, over an entry that does not count.
static void close_gap(struct node *node, unsigned at) {
    for (unsigned i = at; node->entries[i].pointer != 0; i++) {
        node->entries[i].key = node->entries[i + 1].key; //~[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
        node->entries[i].pointer = node->entries[i + 1].pointer; //~[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
        if (begins_line(i + 1))
            persist_entry(node, i);
    }
    PM_BARRIER();
    pm_persist((const void *)node->entries, sizeof node->entries);
}

static void remove_entry(struct node *node, unsigned at) {
    node->entries[at].pointer = pointer_before(node, at); //~[BUG_SHIFT_RECOVERY] crash-order|crash-durability|crash-atomicity
#ifdef BUG_REMOVE_FLUSH
    pm_flush((const void *)&node->entries[at], sizeof(struct entry));
    for (unsigned i = at; node->entries[i].pointer != 0; i++) {
        node->entries[i].key = node->entries[i + 1].key; //~[BUG_REMOVE_FLUSH] crash-order|crash-durability|crash-atomicity
        node->entries[i].pointer = node->entries[i + 1].pointer; //~[BUG_REMOVE_FLUSH] crash-order|crash-durability|crash-atomicity
    }
    pm_persist((const void *)node->entries, sizeof node->entries);
#else
    persist_entry(node, at);
    close_gap(node, at);
#endif
}

// The node of the level in which the key belongs.
static struct node *descend(uint64_t key, uint64_t level) {
    struct node *node = node_at(root->top);
    for (;;) {
        while (node->sibling != 0 && key >= node_at(node->sibling)->low)
            node = node_at(node->sibling);
        if (node->level == level)
            return node;
        REQUIRE(node->level > level, "a node of level %lu instead of %lu", node->level, level);
        uint64_t child = node->leftmost;
        for (unsigned i = 0; node->entries[i].pointer != 0 && node->entries[i].key <= key; i++)
            if (counts(node, i))
                child = node->entries[i].pointer;
        node = node_at(child);
    }
}

static unsigned position(const struct node *node, uint64_t key) {
    unsigned i = 0;
    while (node->entries[i].pointer != 0 && node->entries[i].key < key)
        i++;
    return i;
}

static uint64_t make_node(uint64_t level, uint64_t low, uint64_t leftmost) {
    uint64_t index = take_slot(node_used, NODES, &node_hint);
    struct node *node = &root->nodes[index];
    memset((void *)node, 0, sizeof *node); //~[BUG_SIBLING_ORDER] crash-order|crash-durability|crash-atomicity
    node->level = level; //~[BUG_ROOT_FLUSH] crash-order|crash-durability
    node->low = low; //~[BUG_SIBLING_ORDER] crash-order|crash-durability|crash-atomicity
    node->leftmost = leftmost; //~[BUG_ROOT_FLUSH] crash-order|crash-durability
    return index + 2;
}

static void add(uint64_t level, struct entry entry);

// The parent, or a new root, learns of a node.
static void add_to_parent(struct node *node, uint64_t pointer) {
    struct node *top = node_at(root->top);
    if (top->level > node->level) {
        add(node->level + 1, (struct entry){node->low, pointer});
        return;
    }
    uint64_t new_top = make_node(node->level + 1, 0, root->top);
    node_at(new_top)->entries[0].key = node->low; //~[BUG_ROOT_FLUSH] crash-order|crash-durability
    node_at(new_top)->entries[0].pointer = pointer; //~[BUG_ROOT_FLUSH] crash-order|crash-durability
#ifndef BUG_ROOT_FLUSH
    pm_persist(node_at(new_top), sizeof *node);
#endif
    store_durably(&root->top, new_top);
}

static void cut(struct node *node, unsigned at) {
    node->entries[at].pointer = 0; //~[BUG_SPLIT_ORDER] crash-order|crash-durability|crash-atomicity
    persist_entry(node, at);
}

static void split(struct node *left) {
    unsigned half = (ENTRIES - 1) / 2;
    volatile struct entry *middle = &left->entries[half];
    bool is_leaf = left->level == 0;
    uint64_t pointer = make_node(left->level, middle->key, is_leaf ? NOBODY : middle->pointer);
    struct node *right = node_at(pointer);
    unsigned count = 0;
    for (unsigned i = is_leaf ? half : half + 1; i < ENTRIES - 1; i++, count++) {
        right->entries[count].key = left->entries[i].key; //~[BUG_SIBLING_ORDER] crash-order|crash-durability|crash-atomicity
        right->entries[count].pointer = left->entries[i].pointer; //~[BUG_SIBLING_ORDER] crash-order|crash-durability|crash-atomicity
    }
    right->sibling = left->sibling; //~[BUG_SIBLING_ORDER] crash-order|crash-durability|crash-atomicity
    pm_flush(right, sizeof *right);
#ifndef BUG_SIBLING_ORDER
    PM_SFENCE();
#endif
#ifdef BUG_SPLIT_ORDER
    cut(left, half); // the upper half is nowhere for a moment
    left->sibling = pointer; //~[BUG_SPLIT_ORDER] crash-order|crash-durability|crash-atomicity
    pm_persist(&left->sibling, sizeof left->sibling);
#else
    store_durably(&left->sibling, pointer);
    cut(left, half);
#endif
    add_to_parent(right, pointer);
}

static void add(uint64_t level, struct entry entry) {
    struct node *node = descend(entry.key, level);
    if (count_of(node) == ENTRIES - 1) {
        split(node);
        node = descend(entry.key, level);
    }
    insert_entry(node, position(node, entry.key), entry);
}

static void kv_insert(uint64_t key, uint64_t value) {
    uint64_t record = take_slot(record_used, RECORDS, &record_hint);
    root->records[record] = value; //~[BUG_RECORD_ORDER] crash-order|crash-durability
#ifndef BUG_RECORD_ORDER
    pm_persist(&root->records[record], sizeof value);
#endif
    add(0, (struct entry){key, record + 2});
#ifdef BUG_RECORD_ORDER
    pm_persist(&root->records[record], sizeof value);
#endif
}

// Where the key is in its leaf; -1 if it is not there.
static int find(const struct node *leaf, uint64_t key) {
    for (unsigned i = 0; leaf->entries[i].pointer != 0; i++)
        if (leaf->entries[i].key == key && counts(leaf, i))
            return (int)i;
    return -1;
}

static void kv_update(uint64_t key, uint64_t value) {
    struct node *leaf = descend(key, 0);
    store_durably(record_at(leaf->entries[find(leaf, key)].pointer), value);
}

static void kv_remove(uint64_t key) {
    struct node *leaf = descend(key, 0);
    int at = find(leaf, key);
    uint64_t record = leaf->entries[at].pointer - 2;
    remove_entry(leaf, (unsigned)at);
    record_used[record] = false;
    record_hint = record;
}

static uint64_t kv_get(uint64_t key) {
    struct node *leaf = descend(key, 0);
    int at = find(leaf, key);
    return at < 0 ? 0 : *record_at(leaf->entries[at].pointer);
}

// What a crash left half done in the node.
static void repair(struct node *node) {
#ifndef BUG_SHIFT_RECOVERY
    for (unsigned i = 0; node->entries[i].pointer != 0; i++)
        if (!counts(node, i))
            close_gap(node, i);
#endif
    if (node->sibling == 0)
        return;
    uint64_t above = node_at(node->sibling)->low;
    unsigned at = position(node, above);
    if (node->entries[at].pointer != 0)
        cut(node, at);
}

static bool parent_knows(const struct node *node, uint64_t pointer) {
    struct node *parent = descend(node->low, node->level + 1);
    bool found = parent->leftmost == pointer;
    for (unsigned i = 0; parent->entries[i].pointer != 0; i++)
        found |= parent->entries[i].pointer == pointer;
    return found;
}

static void recover(void) {
    // The leftmost node of each level, the root's first.
    for (uint64_t first = root->top; first >= 2; first = node_at(first)->leftmost)
        for (uint64_t at = first; at != 0; at = node_at(at)->sibling) {
            REQUIRE(!node_used[at - 2], "node %lu is linked twice", at);
            node_used[at - 2] = true;
            repair(node_at(at));
            for (unsigned i = 0; node_at(at)->level == 0 && node_at(at)->entries[i].pointer != 0; i++) {
                (void)record_at(node_at(at)->entries[i].pointer);
                record_used[node_at(at)->entries[i].pointer - 2] = true;
            }
        }
    for (uint64_t first = root->top; first >= 2; first = node_at(first)->leftmost)
        for (uint64_t at = node_at(first)->sibling; at != 0; at = node_at(at)->sibling)
            if (node_at(root->top)->level == node_at(at)->level || !parent_knows(node_at(at), at))
                add_to_parent(node_at(at), at);
}

static uint64_t kv_check(void) {
    uint64_t entries = 0;
    uint64_t pointer = root->top;
    while (node_at(pointer)->level != 0)
        pointer = node_at(pointer)->leftmost;
    for (uint64_t last = 0; pointer != 0; pointer = node_at(pointer)->sibling)
        for (unsigned i = 0; i < count_of(node_at(pointer)); i++, entries++) {
            uint64_t key = node_at(pointer)->entries[i].key;
            REQUIRE(key > last, "key %lu after %lu", key, last);
            last = key;
        }
    return entries;
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover();
        return true;
    }
    if (!create)
        return false;
    uint64_t top = make_node(0, 0, NOBODY);
    pm_persist(node_at(top), sizeof(struct node));
    store_durably(&root->top, top);
    store_durably(&root->magic, MAGIC);
    return true;
}
