// A skip list of raw pointers. The lowest level is the list; the levels above are shortcuts, each of which is a part of the
// level below: a node is linked from the lowest level upwards and unlinked from the highest downwards.
//
// The file is always mapped at the address that its pointers are for. Values are records of their own, exchanged as a whole.
//
#include "kv.h"

#define MAGIC 0x7473696c70696b73u
#define LEVELS 6
#define NODES 640
#define RECORDS 640
#define WORDS 8

struct record {
    _Alignas(LINE) uint64_t length;
    uint64_t words[WORDS]; // all derived from the first
};

struct node {
    _Alignas(LINE) uint64_t key;
    uint64_t height;
    struct record *record;
    uint64_t padding[5];
    struct node *next[LEVELS];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    struct root *self; // where the file must be mapped
    struct node head;
    struct node nodes[NODES];
    struct record records[RECORDS];
};

static struct root *root;
static bool node_used[NODES], record_used[RECORDS];
static uint64_t node_hint, record_hint;

static struct node *allocate_node(void) {
    return &root->nodes[take_slot(node_used, NODES, &node_hint)];
}

static struct record *allocate_record(void) {
    return &root->records[take_slot(record_used, RECORDS, &record_hint)];
}

// What was released last is used first.
static void release_node(struct node *node) {
    node_hint = (uint64_t)(node - root->nodes);
    node_used[node_hint] = false;
}

static void release_record(struct record *record) {
    record_hint = (uint64_t)(record - root->records);
    record_used[record_hint] = false;
}

static struct record *make_record(uint64_t value) {
    struct record *record = allocate_record();
    record->length = WORDS;
    for (uint64_t i = 0; i < WORDS; i++)
        record->words[i] = i == 0 ? value : mix(value + i); //~[BUG_RECORD_FLUSH] crash-order|crash-durability
#ifdef BUG_RECORD_FLUSH
    pm_persist(record, WORDS * sizeof(uint64_t)); // without the length
#else
    pm_persist(record, sizeof *record);
#endif
    return record;
}

static uint64_t random_height(uint64_t key) {
    uint64_t height = 1;
    for (uint64_t bits = mix(key * 31); height < LEVELS && (bits & 1); bits >>= 1)
        height++;
    return height;
}

// The last node before the key, on each level.
static void find_before(uint64_t key, struct node **before) {
    struct node *node = &root->head;
    for (int level = LEVELS - 1; level >= 0; level--) {
        while (node->next[level] && node->next[level]->key < key)
            node = node->next[level];
        before[level] = node;
    }
}

static struct node *find(uint64_t key) {
    struct node *before[LEVELS];
    find_before(key, before);
    struct node *node = before[0]->next[0];
    return node && node->key == key ? node : NULL;
}

static void set_next(struct node *node, uint64_t level, struct node *next) {
    node->next[level] = next; //~[BUG_UPPER_FIRST] crash-order|crash-atomicity
    //~^[BUG_REMOVE_ORDER] crash-order|crash-atomicity|crash-durability
    pm_persist(&node->next[level], sizeof(struct node *));
}

static void kv_insert(uint64_t key, uint64_t value) {
    struct node *before[LEVELS];
    find_before(key, before);
    struct node *node = allocate_node();
    node->key = key; //~[BUG_INSERT_ORDER] crash-order|crash-durability
    node->height = random_height(key); //~[BUG_INSERT_ORDER] crash-order|crash-durability
    node->record = make_record(value); //~[BUG_INSERT_ORDER] crash-order|crash-durability
    for (uint64_t level = 0; level < LEVELS; level++)
        node->next[level] = level < node->height ? before[level]->next[level] : NULL;
#ifndef BUG_INSERT_ORDER
    pm_persist(node, sizeof *node);
#endif
#ifdef BUG_UPPER_FIRST
    for (uint64_t level = node->height; level-- > 0;)
        set_next(before[level], level, node); //~[BUG_UPPER_FIRST] crash-order|crash-atomicity
#else
    for (uint64_t level = 0; level < node->height; level++)
        set_next(before[level], level, node); //~[BUG_UPPER_FIRST] crash-order|crash-atomicity
#endif
#ifdef BUG_INSERT_ORDER
    pm_persist(node, sizeof *node);
#endif
}

static void kv_update(uint64_t key, uint64_t value) {
    struct node *node = find(key);
    struct record *old = node->record;
#ifdef BUG_UPDATE_IN_PLACE
    for (uint64_t i = 0; i < WORDS; i++)
        old->words[i] = i == 0 ? value : mix(value + i); //~[BUG_UPDATE_IN_PLACE] crash-atomicity|crash-order
    pm_persist(old, sizeof *old);
#else
    node->record = make_record(value);
    pm_persist(&node->record, sizeof node->record);
    release_record(old);
#endif
}

// A crash in its insertion may have left the node without its upper levels: what it has as next there is of that time.
static void unlink_at(struct node *before, uint64_t level, struct node *node) {
    if (before->next[level] == node)
        set_next(before, level, node->next[level]); //~[BUG_REMOVE_ORDER] crash-order|crash-atomicity|crash-durability
}

static void kv_remove(uint64_t key) {
    struct node *before[LEVELS];
    find_before(key, before);
    struct node *node = before[0]->next[0];
#ifdef BUG_REMOVE_ORDER
    for (uint64_t level = 0; level < node->height; level++)
        unlink_at(before[level], level, node); //~[BUG_REMOVE_ORDER] crash-order|crash-atomicity|crash-durability
#else
    for (uint64_t level = node->height; level-- > 0;)
        unlink_at(before[level], level, node); //~[BUG_REMOVE_ORDER] crash-order|crash-atomicity|crash-durability
#endif
    release_record(node->record);
    release_node(node);
}

static uint64_t kv_get(uint64_t key) {
    struct node *node = find(key);
    if (!node)
        return 0;
    REQUIRE(node->record->length == WORDS, "key %lu has a value of %lu words", key, node->record->length);
    for (uint64_t i = 1; i < WORDS; i++)
        REQUIRE(node->record->words[i] == mix(node->record->words[0] + i), "the value of key %lu is torn", key);
    return node->record->words[0];
}

static uint64_t kv_check(void) {
    uint64_t nodes = 0;
    for (struct node *node = root->head.next[0]; node; node = node->next[0]) {
        nodes++;
        REQUIRE(!node->next[0] || node->key < node->next[0]->key, "key %lu is not in order", node->key);
        REQUIRE(node->height == random_height(node->key), "key %lu has height %lu", node->key, node->height);
        REQUIRE(node->record->length == WORDS, "key %lu has a value of %lu words", node->key, node->record->length);
        for (uint64_t i = 1; i < WORDS; i++)
            REQUIRE(node->record->words[i] == mix(node->record->words[0] + i), "the value of key %lu is torn", node->key);
    }
    for (uint64_t level = 1; level < LEVELS; level++) {
        struct node *below = root->head.next[level - 1];
        for (struct node *node = root->head.next[level]; node; node = node->next[level]) {
            while (below && below != node)
                below = below->next[level - 1];
            REQUIRE(below, "key %lu is on level %lu and not below", node->key, level);
        }
    }
    return nodes;
}

static void recover(void) {
    for (struct node *node = root->head.next[0]; node; node = node->next[0]) {
        uint64_t n = (uint64_t)(node - root->nodes), r = (uint64_t)(node->record - root->records);
        REQUIRE(n < NODES && !node_used[n], "a link to %p", (void *)node);
        REQUIRE(r < RECORDS && !record_used[r], "a link to value %p", (void *)node->record);
        node_used[n] = record_used[r] = true;
    }
}

static void *map_at(const char *path, void *address) {
    int fd = open(path, O_RDWR);
    void *mapped = mmap(address, sizeof *root, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    REQUIRE(mapped == address, "cannot map the file at %p", address);
    close(fd);
    return mapped;
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        if (root->self != root) {
            struct root *self = root->self;
            munmap(root, sizeof *root);
            root = (struct root *)map_at(path, self);
        }
        recover();
        return true;
    }
    if (!create)
        return false;
    root->self = root;
    memset(&root->head, 0, sizeof root->head);
    pm_persist(root, offsetof(struct root, nodes));
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
