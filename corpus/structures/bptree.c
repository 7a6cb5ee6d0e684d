// A B+tree. What changes more than a word is done under an undo log: the old content of each node is logged and durable before
// the node is changed, and the log is emptied when all changes are durable. Opening rolls back what was under way.
//
// Leaves may become empty and then stay in the tree.
#include "kv.h"

#define MAGIC 0x65657274706cu
#define FANOUT 7
#define NODES 512
#define LOGGED 16 // an insert changes at most two nodes on each level, and the root

struct node {
    _Alignas(LINE) uint32_t is_leaf;
    uint32_t count;
    uint64_t next; // leaves: the next leaf
    uint64_t keys[FANOUT];
    uint64_t slots[FANOUT + 1]; // leaves: values; inner nodes: children, one more than keys
};

struct log_entry {
    _Alignas(LINE) uint64_t offset;
    uint64_t length;
    char old[sizeof(struct node)];
};

struct undo_log {
    _Alignas(LINE) uint64_t count;
    struct log_entry entries[LOGGED];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t top;  // index of the root node
    uint64_t nodes_used;          // changed together with top, if both are
    struct undo_log log;
    struct node nodes[NODES];
};

static struct root *root;
static uint64_t dirty[LOGGED], dirty_count; // offsets of what the transaction changes

static struct node *node_at(uint64_t index) {
    REQUIRE(index < NODES && index < root->nodes_used, "node %lu of %lu", index, root->nodes_used);
    return &root->nodes[index];
}

// Keeps the old content of what is about to be changed.
static void log_old(void *at, uint64_t length) {
    uint64_t offset = (uint64_t)((char *)at - (char *)root);
    for (uint64_t i = 0; i < dirty_count; i++)
        if (dirty[i] == offset)
            return;
    struct log_entry *entry = &root->log.entries[dirty_count];
    entry->offset = offset; //~[BUG_LOG_COUNT] crash-order|crash-atomicity
    entry->length = length; //~[BUG_LOG_COUNT] crash-order|crash-atomicity
    memcpy(entry->old, at, length); //~[BUG_LOG_COUNT] crash-order|crash-atomicity
    pm_flush(entry, offsetof(struct log_entry, old) + length);
#ifndef BUG_LOG_COUNT
    PM_SFENCE();
#endif
    dirty[dirty_count++] = offset;
    root->log.count = dirty_count; //~[BUG_LOG_FENCE] crash-order|crash-atomicity
#ifdef BUG_LOG_FENCE
    pm_flush(&root->log.count, sizeof root->log.count); // may still be on its way when the node changes
#else
    pm_persist(&root->log.count, sizeof root->log.count);
#endif
}

static void end_log(void) {
    root->log.count = 0; //~[BUG_COMMIT_ORDER] crash-order
    pm_persist(&root->log.count, sizeof root->log.count);
    dirty_count = 0;
}

static void commit(void) {
#ifdef BUG_COMMIT_ORDER
    end_log();
#endif
    for (uint64_t i = 0; i < dirty_count; i++)
        pm_flush((char *)root + dirty[i], root->log.entries[i].length);
#ifdef BUG_COMMIT_ORDER
    pm_persist(root->nodes, sizeof(struct node) * root->nodes_used);
#else
    PM_SFENCE();
    end_log();
#endif
}

static void roll_back(void) {
    REQUIRE(root->log.count <= LOGGED, "a log of %lu entries", root->log.count);
    for (uint64_t i = root->log.count; i-- > 0;) {
        struct log_entry *entry = &root->log.entries[i];
        REQUIRE(entry->length <= sizeof(struct node) && entry->offset < sizeof *root, "log entry %lu is broken", i);
        memcpy((char *)root + entry->offset, entry->old, entry->length);
        pm_flush((char *)root + entry->offset, entry->length);
    }
    PM_SFENCE();
    end_log();
}

static uint64_t make_node(bool is_leaf) {
    REQUIRE(root->nodes_used < NODES, "the file is full");
    log_old(&root->top, 2 * sizeof(uint64_t));
    uint64_t index = root->nodes_used++;
    struct node *node = &root->nodes[index];
    log_old(node, sizeof *node);
    node->is_leaf = is_leaf;
    node->count = 0;
    node->next = 0;
    return index;
}

// The position of the first key that is greater; in a leaf, of the first that is not less.
static uint32_t position(const struct node *node, uint64_t key) {
    uint32_t i = 0;
    while (i < node->count && (node->is_leaf ? node->keys[i] < key : node->keys[i] <= key))
        i++;
    return i;
}

static struct node *find_leaf(uint64_t key) {
    struct node *node = node_at(root->top);
    while (!node->is_leaf)
        node = node_at(node->slots[position(node, key)]);
    return node;
}

// Splits the full child `i` of the node; the right half goes to a new node.
static void split(struct node *parent, uint32_t i) {
    uint64_t right_index = make_node(false);
    struct node *left = node_at(parent->slots[i]), *right = node_at(right_index);
#ifndef BUG_SPLIT_LOG
    log_old(left, sizeof *left);
#endif
    log_old(parent, sizeof *parent);
    uint32_t half = left->count / 2;
    uint64_t separator = left->keys[half];
    right->is_leaf = left->is_leaf;
    uint32_t from = left->is_leaf ? half : half + 1;
    right->count = left->count - from;
    memcpy(right->keys, left->keys + from, right->count * sizeof(uint64_t));
    memcpy(right->slots, left->slots + from, (right->count + !left->is_leaf) * sizeof(uint64_t));
    if (left->is_leaf) {
        right->next = left->next;
        left->next = right_index; //~[BUG_SPLIT_LOG] crash-order|crash-atomicity
    }
    left->count = half; //~[BUG_SPLIT_LOG] crash-order|crash-atomicity
#ifdef BUG_SPLIT_LOG
    pm_flush(left, sizeof *left);
#endif
    memmove(parent->keys + i + 1, parent->keys + i, (parent->count - i) * sizeof(uint64_t));
    memmove(parent->slots + i + 2, parent->slots + i + 1, (parent->count - i) * sizeof(uint64_t));
    parent->keys[i] = separator;
    parent->slots[i + 1] = right_index;
    parent->count++;
}

static void kv_insert(uint64_t key, uint64_t value) {
    if (node_at(root->top)->count == FANOUT) {
        uint64_t old_top = root->top, new_top = make_node(false);
        struct node *node = node_at(new_top);
        node->slots[0] = old_top;
        root->top = new_top;
        split(node, 0);
    }
    struct node *node = node_at(root->top);
    while (!node->is_leaf) {
        uint32_t i = position(node, key);
        if (node_at(node->slots[i])->count == FANOUT) {
            split(node, i);
            i = position(node, key);
        }
        node = node_at(node->slots[i]);
    }
    uint32_t i = position(node, key);
#ifdef BUG_SHIFT_LOG
    bool logged = i == node->count && dirty_count > 0; // shifts in place
    if (logged)
        log_old(node, sizeof *node);
#else
    log_old(node, sizeof *node);
#endif
    memmove(node->keys + i + 1, node->keys + i, (node->count - i) * sizeof(uint64_t));
    memmove(node->slots + i + 1, node->slots + i, (node->count - i) * sizeof(uint64_t)); //~[BUG_SHIFT_LOG] crash-order|crash-atomicity
    node->keys[i] = key; //~[BUG_SHIFT_LOG] crash-order|crash-atomicity
    node->slots[i] = value; //~[BUG_SHIFT_LOG] crash-order|crash-atomicity
    node->count++; //~[BUG_SHIFT_LOG] crash-order|crash-atomicity
#ifdef BUG_SHIFT_LOG
    pm_flush(node, sizeof *node);
#endif
    commit();
}

// A value is a word.
static void kv_update(uint64_t key, uint64_t value) {
    struct node *leaf = find_leaf(key);
    uint64_t *slot = &leaf->slots[position(leaf, key)];
    *slot = value;
    pm_persist(slot, sizeof *slot);
}

static void kv_remove(uint64_t key) {
    struct node *leaf = find_leaf(key);
    uint32_t i = position(leaf, key);
    log_old(leaf, sizeof *leaf);
    leaf->count--;
    memmove(leaf->keys + i, leaf->keys + i + 1, (leaf->count - i) * sizeof(uint64_t));
    memmove(leaf->slots + i, leaf->slots + i + 1, (leaf->count - i) * sizeof(uint64_t));
    commit();
}

static uint64_t kv_get(uint64_t key) {
    struct node *leaf = find_leaf(key);
    uint32_t i = position(leaf, key);
    return i < leaf->count && leaf->keys[i] == key ? leaf->slots[i] : 0;
}

static uint64_t first_leaf, leaves;

// Keys are in [low, high) and sorted, all leaves at one depth; the number of entries below.
static uint64_t check_node(uint64_t index, uint64_t low, uint64_t high, uint64_t depth, uint64_t *leaf_depth) {
    struct node *node = node_at(index);
    REQUIRE(node->count <= FANOUT, "node %lu has %u keys", index, node->count);
    REQUIRE(depth < 20, "a cycle");
    for (uint32_t i = 0; i < node->count; i++) {
        REQUIRE(node->keys[i] >= low && node->keys[i] < high, "node %lu: key %lu is not in its range", index, node->keys[i]);
        REQUIRE(i == 0 || node->keys[i - 1] < node->keys[i], "node %lu is not sorted", index);
    }
    if (node->is_leaf) {
        if (*leaf_depth == 0)
            *leaf_depth = depth, first_leaf = index;
        REQUIRE(*leaf_depth == depth, "leaves at depths %lu and %lu", *leaf_depth, depth);
        leaves++;
        return node->count;
    }
    uint64_t entries = 0;
    for (uint32_t i = 0; i <= node->count; i++)
        entries += check_node(node->slots[i], i == 0 ? low : node->keys[i - 1], i == node->count ? high : node->keys[i],
                              depth + 1, leaf_depth);
    return entries;
}

static uint64_t kv_check(void) {
    uint64_t leaf_depth = 0, in_list = 0, linked = 1;
    uint64_t entries = check_node(root->top, 0, UINT64_MAX, 1, &leaf_depth);
    struct node *leaf = node_at(first_leaf);
    for (; leaf->next != 0 && linked <= leaves; linked++) {
        in_list += leaf->count;
        leaf = node_at(leaf->next);
    }
    in_list += leaf->count;
    REQUIRE(linked == leaves && in_list == entries, "%lu leaves with %lu entries, and %lu with %lu in the list", leaves,
            entries, linked, in_list);
    return entries;
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        if (root->log.count != 0)
            roll_back();
        return true;
    }
    if (!create)
        return false;
    memset(&root->nodes[1], 0, sizeof root->nodes[1]);
    root->nodes[1].is_leaf = 1;
    root->log.count = 0;
    root->top = 1; // index 0 is no node, so that a next of 0 is the end
    root->nodes_used = 2;
    pm_flush(&root->nodes[1], sizeof root->nodes[1]);
    pm_flush(&root->top, 2 * sizeof(uint64_t));
    pm_persist(&root->log.count, sizeof root->log.count);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
