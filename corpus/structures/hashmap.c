// A hash table with chaining. It doubles when it is full: entries are copied to a new table, to which the root is switched.
//
// Entries lie in an array of slots. Which slots are free is not persistent: opening finds out by walking the table.
//
// Output does not show BUG_COUNT: a wrong count only changes when the table grows.
#include "kv.h"

#define MAGIC 0x70616d68736168u
#define SLOTS 1024
#define FIRST_BUCKETS 4
#define TABLES 8 // of 4, 8, … 512 buckets

struct value {
    uint64_t data, check; // check is derived from data, so that half a value shows
};

struct entry {
    _Alignas(LINE) uint64_t key;
    struct value value;
    char padding[LINE - 24]; // what a real entry would keep here
    uint64_t next;           // slot + 1, or 0
    uint64_t created;        // a time stamp; never 0
    char more[LINE - 16];
};

struct table {
    _Alignas(LINE) uint64_t buckets[FIRST_BUCKETS << (TABLES - 1)]; // slot + 1, or 0
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t bits; // the table in use is tables[bits] and has 4 << bits buckets
    _Alignas(LINE) uint64_t count;
    struct table tables[TABLES];
    struct entry entries[SLOTS];
};

static struct root *root;
static bool used[SLOTS];
static uint64_t free_hint, count, now;

static uint64_t buckets_of(uint64_t bits) {
    return FIRST_BUCKETS << bits;
}

static uint64_t *bucket(uint64_t bits, uint64_t key) {
    return &root->tables[bits].buckets[mix(key) & (buckets_of(bits) - 1)];
}

static struct entry *entry_at(uint64_t link) {
    REQUIRE(link != 0 && link <= SLOTS, "a link to slot %lu", link);
    return &root->entries[link - 1];
}

static uint64_t allocate(void) {
    return take_slot(used, SLOTS, &free_hint) + 1;
}

static void release(uint64_t link) {
    used[link - 1] = false;
    free_hint = link - 1; // the slot that is warm in the cache
}

// A new entry, persistent, which nothing refers to yet. Without a fence.
static uint64_t make_entry(uint64_t key, struct value value, uint64_t next) {
    uint64_t link = allocate();
    struct entry *entry = entry_at(link);
    entry->key = key; //~[BUG_INSERT_ORDER] crash-order
    entry->value = value; //~[BUG_INSERT_ORDER] crash-order
    entry->next = next; //~[BUG_NEXT_FLUSH] crash-order
    //~^[BUG_INSERT_ORDER] crash-order
    entry->created = ++now; //~[BUG_NEXT_FLUSH] crash-order
    //~^[BUG_INSERT_ORDER] crash-order
#ifdef BUG_NEXT_FLUSH
    pm_flush(entry, LINE); // forgets the second line
#else
    pm_flush(entry, sizeof *entry);
#endif
    return link;
}

static struct value value_of(uint64_t data) {
    struct value value = {data, mix(data)};
    return value;
}

// Sets a link and makes that durable.
static void set_link(uint64_t *link, uint64_t to) {
    *link = to;
    pm_persist(link, sizeof *link);
}

static void set_count(uint64_t n) {
    count = n;
    root->count = n; //~[BUG_COUNT] crash-atomicity|crash-order|crash-durability
    pm_persist(&root->count, sizeof root->count);
}

// To a table of twice the size. The old one and its entries stay as they are until the root is switched.
static void resize(void) {
    uint64_t bits = root->bits;
    if (bits + 1 == TABLES)
        return;
    struct table *table = &root->tables[bits + 1];
    memset(table->buckets, 0, buckets_of(bits + 1) * sizeof(uint64_t));
    pm_persist(table->buckets, buckets_of(bits + 1) * sizeof(uint64_t));
    for (uint64_t i = 0; i < buckets_of(bits); i++) {
        for (uint64_t link = root->tables[bits].buckets[i]; link != 0; link = entry_at(link)->next) {
            struct entry *old = entry_at(link);
            uint64_t *head = bucket(bits + 1, old->key);
            *head = make_entry(old->key, old->value, *head); //~[BUG_RESIZE_ORDER] crash-order
#ifndef BUG_RESIZE_ORDER
            pm_flush(head, sizeof *head);
#endif
        }
        PM_SFENCE();
    }
    root->bits = bits + 1;
    pm_persist(&root->bits, sizeof root->bits);
#ifdef BUG_RESIZE_ORDER
    pm_persist(table->buckets, buckets_of(bits + 1) * sizeof(uint64_t));
#endif
    for (uint64_t i = 0; i < buckets_of(bits); i++)
        for (uint64_t link = root->tables[bits].buckets[i]; link != 0; link = entry_at(link)->next)
            release(link);
}

static void kv_insert(uint64_t key, uint64_t data) {
    if (count >= 2 * buckets_of(root->bits))
        resize();
    uint64_t *head = bucket(root->bits, key);
    uint64_t link = make_entry(key, value_of(data), *head);
#ifndef BUG_INSERT_ORDER
    PM_SFENCE();
#endif
    set_link(head, link);
    set_count(count + 1);
}

// The link that refers to the key's entry, or the one at the chain's end.
static uint64_t *find(uint64_t key) {
    uint64_t *link = bucket(root->bits, key);
    while (*link != 0 && entry_at(*link)->key != key)
        link = &entry_at(*link)->next;
    return link;
}

// A value is two words, so a new entry takes the place of the old one.
static void kv_update(uint64_t key, uint64_t data) {
    uint64_t *link = find(key);
#ifdef BUG_UPDATE_IN_PLACE
    entry_at(*link)->value = value_of(data); //~[BUG_UPDATE_IN_PLACE] crash-atomicity|crash-order
    pm_persist(&entry_at(*link)->value, sizeof(struct value));
#else
    uint64_t old = *link;
    uint64_t new_link = make_entry(key, value_of(data), entry_at(old)->next);
    PM_SFENCE();
    set_link(link, new_link);
    release(old);
#endif
}

static void kv_remove(uint64_t key) {
    uint64_t *link = find(key);
    uint64_t old = *link;
#ifdef BUG_REUSE
    *link = entry_at(old)->next; //~[BUG_REUSE] crash-order|crash-durability
#else
    set_link(link, entry_at(old)->next);
#endif
    release(old);
    set_count(count - 1);
}

static uint64_t kv_get(uint64_t key) {
    uint64_t link = *find(key);
    if (link == 0)
        return 0;
    struct value value = entry_at(link)->value;
    REQUIRE(value.check == mix(value.data), "the value of key %lu is torn", key);
    return value.data;
}

static uint64_t kv_check(void) {
    uint64_t entries = 0;
    for (uint64_t i = 0; i < buckets_of(root->bits); i++) {
        for (uint64_t link = root->tables[root->bits].buckets[i]; link != 0; link = entry_at(link)->next) {
            struct entry *entry = entry_at(link);
            REQUIRE(bucket(root->bits, entry->key) == &root->tables[root->bits].buckets[i], "key %lu in bucket %lu",
                    entry->key, i);
            REQUIRE(entry->value.check == mix(entry->value.data), "the value of key %lu is torn", entry->key);
            REQUIRE(entry->created != 0, "key %lu has no time stamp", entry->key);
            entries++;
        }
    }
    REQUIRE(entries == root->count, "%lu entries, and a count of %lu", entries, root->count);
    return entries;
}

static void recover(void) {
    REQUIRE(root->bits < TABLES, "a table of 4 << %lu buckets", root->bits);
    uint64_t entries = 0;
    for (uint64_t i = 0; i < buckets_of(root->bits); i++) {
        for (uint64_t link = root->tables[root->bits].buckets[i]; link != 0; link = entry_at(link)->next) {
            struct entry *entry = entry_at(link);
            REQUIRE(!used[link - 1], "slot %lu is linked twice", link);
            used[link - 1] = true;
            now = entry->created > now ? entry->created : now;
            entries++;
        }
    }
#ifdef BUG_COUNT
    count = root->count; // trusts it, but it is not changed together with the chain
#else
    if (root->count != entries)
        set_count(entries);
    count = entries;
#endif
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover();
        return true;
    }
    if (!create)
        return false;
    root->bits = 0;
    root->count = 0;
    pm_flush(root, offsetof(struct root, tables));
    memset(&root->tables[0], 0, sizeof root->tables[0]);
    pm_persist(&root->tables[0], sizeof root->tables[0]);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
