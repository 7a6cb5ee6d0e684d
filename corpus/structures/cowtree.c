// A copy-on-write search tree (a treap) with two meta records, as LMDB has them: a transaction copies the nodes on its path,
// makes them durable, and then writes the meta record that is not in use; opening takes the newer of those that are whole.
//
// Nodes that the last two versions do not reach are free. Each transaction may change several keys.
#include "kv.h"

#define MAGIC 0x65657274776f63u
#define NODES 4096

struct node {
    _Alignas(LINE) uint64_t key;
    uint64_t value;
    uint64_t left, right; // node indices; 0: none
    uint64_t version;     // of the transaction that made it
};

struct meta {
    _Alignas(LINE) uint64_t version;
    uint64_t top;
    uint64_t entries;
    _Alignas(LINE) uint64_t checksum; // of the three
};

struct root {
    _Alignas(LINE) uint64_t magic;
    struct meta metas[2];
    struct node nodes[NODES];
};

static struct root *root;
static struct meta current; // of which only version, top and entries are used
static bool in_use[NODES];
static uint64_t hint;
// Replaced by the running transaction, and by the one before it: those can be reused when the running one is durable.
static uint64_t replaced[NODES], replaced_count, waiting[NODES], waiting_count;

static struct node *node_at(uint64_t index) {
    REQUIRE(index != 0 && index < NODES, "a link to node %lu", index);
    return &root->nodes[index];
}

static uint64_t make_node(struct node *content) {
    for (uint64_t i = 0; i < NODES; i++) {
        hint = hint % (NODES - 1) + 1;
        if (!in_use[hint]) {
            in_use[hint] = true;
            content->version = current.version + 1;
            root->nodes[hint] = *content; //~[BUG_META_ORDER] crash-order|crash-durability
            //~^[BUG_FREE_EARLY] crash-order|crash-atomicity|crash-durability
#ifndef BUG_META_ORDER
            pm_flush(&root->nodes[hint], sizeof *content);
#endif
            return hint;
        }
    }
    REQUIRE(false, "the file is full");
    return 0;
}

static void replace(uint64_t index) {
#ifdef BUG_FREE_EARLY
    in_use[index] = false; // but the durable version still has it
    hint = index - 1;
#else
    replaced[replaced_count++] = index;
#endif
}

static uint64_t priority(uint64_t key) {
    return mix(key ^ 0xabcdef);
}

static uint64_t with_children(uint64_t index, uint64_t left, uint64_t right) {
    struct node copy = *node_at(index);
    replace(index);
    copy.left = left;
    copy.right = right;
    return make_node(&copy);
}

// Splits the tree into keys below the key and above it.
static void split(uint64_t index, uint64_t key, uint64_t *below, uint64_t *above) {
    if (index == 0) {
        *below = *above = 0;
        return;
    }
    struct node node = *node_at(index);
    if (node.key < key) {
        split(node.right, key, &node.right, above);
        *below = with_children(index, node.left, node.right);
    } else {
        split(node.left, key, below, &node.left);
        *above = with_children(index, node.left, node.right);
    }
}

static uint64_t merge(uint64_t left, uint64_t right) {
    if (left == 0 || right == 0)
        return left ? left : right;
    struct node l = *node_at(left), r = *node_at(right);
    if (priority(l.key) > priority(r.key))
        return with_children(left, l.left, merge(l.right, right));
    return with_children(right, merge(left, r.left), r.right);
}

static uint64_t insert(uint64_t index, uint64_t key, uint64_t value) {
    if (index == 0 || priority(node_at(index)->key) < priority(key)) {
        struct node node = {.key = key, .value = value};
        split(index, key, &node.left, &node.right);
        return make_node(&node);
    }
    struct node node = *node_at(index);
    if (key < node.key)
        return with_children(index, insert(node.left, key, value), node.right);
    return with_children(index, node.left, insert(node.right, key, value));
}

static uint64_t update(uint64_t index, uint64_t key, uint64_t value) {
    struct node node = *node_at(index);
    if (key < node.key)
        return with_children(index, update(node.left, key, value), node.right);
    if (key > node.key)
        return with_children(index, node.left, update(node.right, key, value));
#ifdef BUG_UPDATE_IN_PLACE
    root->nodes[index].value = value; // "only the value changes"
    pm_flush(&root->nodes[index], sizeof(struct node));
    root->nodes[index].version = current.version + 1; //~[BUG_UPDATE_IN_PLACE] crash-order|crash-atomicity
    pm_persist(&root->nodes[index], sizeof(struct node));
    return index;
#else
    replace(index);
    node.value = value;
    return make_node(&node);
#endif
}

static uint64_t remove_key(uint64_t index, uint64_t key) {
    struct node node = *node_at(index);
    if (key < node.key)
        return with_children(index, remove_key(node.left, key), node.right);
    if (key > node.key)
        return with_children(index, node.left, remove_key(node.right, key));
    replace(index);
    return merge(node.left, node.right);
}

static uint64_t checksum(const struct meta *meta) {
    return mix(meta->version ^ mix(meta->top ^ mix(meta->entries)));
}

static void commit(uint64_t top, uint64_t entries) {
    PM_SFENCE();
    struct meta meta = {.version = current.version + 1, .top = top, .entries = entries};
#ifdef BUG_META_SAME
    struct meta *to = &root->metas[0]; // the one in use
#else
    struct meta *to = &root->metas[meta.version % 2];
#endif
    to->version = meta.version; //~[BUG_META_SAME] crash-order|crash-atomicity
    to->top = meta.top; //~[BUG_META_SAME] crash-order|crash-atomicity
    //~^[BUG_NO_CHECKSUM] crash-order|crash-atomicity
    to->entries = meta.entries; //~[BUG_META_SAME] crash-order|crash-atomicity
    to->checksum = checksum(&meta); //~[BUG_META_SAME] crash-order|crash-atomicity
    //~^[BUG_NO_CHECKSUM] crash-order|crash-atomicity
    pm_persist(to, sizeof *to);
#ifdef BUG_META_ORDER
    pm_persist(root->nodes, sizeof root->nodes);
#endif
    current = meta;
    for (uint64_t i = 0; i < waiting_count; i++)
        in_use[waiting[i]] = false;
    memcpy(waiting, replaced, replaced_count * sizeof replaced[0]);
    waiting_count = replaced_count;
    replaced_count = 0;
}

static void kv_insert(uint64_t key, uint64_t value) {
    commit(insert(current.top, key, value), current.entries + 1);
}

static void kv_update(uint64_t key, uint64_t value) {
    commit(update(current.top, key, value), current.entries);
}

static void kv_remove(uint64_t key) {
    commit(remove_key(current.top, key), current.entries - 1);
}

static uint64_t kv_get(uint64_t key) {
    uint64_t index = current.top;
    while (index != 0 && node_at(index)->key != key)
        index = key < node_at(index)->key ? node_at(index)->left : node_at(index)->right;
    return index == 0 ? 0 : node_at(index)->value;
}

static uint64_t walk(uint64_t index, uint64_t low, uint64_t high, uint64_t above) {
    if (index == 0)
        return 0;
    struct node *node = node_at(index);
    REQUIRE(node->key > low && node->key < high, "key %lu is not in its range", node->key);
    REQUIRE(priority(node->key) <= above, "key %lu is too low in the tree", node->key);
    REQUIRE(node->version <= current.version, "key %lu is of version %lu, which is not yet", node->key, node->version);
    in_use[index] = true;
    return 1 + walk(node->left, low, node->key, priority(node->key)) + walk(node->right, node->key, high, priority(node->key));
}

static uint64_t kv_check(void) {
    uint64_t entries = walk(current.top, 0, UINT64_MAX, UINT64_MAX);
    REQUIRE(entries == current.entries, "%lu entries instead of %lu", entries, current.entries);
    return entries;
}

// The other meta record need not be kept alive: the newer one is durable.
static void recover(void) {
    bool found = false;
    for (int i = 0; i < 2; i++) {
        struct meta *meta = &root->metas[i];
#ifdef BUG_NO_CHECKSUM
        bool whole = meta->checksum != 0; // "written last"
#else
        bool whole = meta->checksum == checksum(meta);
#endif
        if (whole && (!found || meta->version > current.version)) {
            current = *meta;
            found = true;
        }
    }
    REQUIRE(found, "no meta record is whole");
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover();
        kv_check();
        return true;
    }
    if (!create)
        return false;
    commit(0, 0);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
