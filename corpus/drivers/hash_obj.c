// A hash table with chaining in a libpmemobj pool, without transactions: entries come from the atomic allocator and are linked by one
// store. An allocation is kept in the root until its entry is linked, so that recovery can free it.
#ifdef DRIVER
#define KV_LEAK kv_leak
static void kv_leak(void);
#endif
#include "../structures/kv.h"
#include <libpmemobj.h>

#define LAYOUT "hash_obj"
#define BUCKETS 64

struct entry {
    uint64_t key, value;
    uint64_t next; // offset in the pool, or 0
};

struct root {
    PMEMoid pending; // allocated, and perhaps not linked yet
    uint64_t buckets[BUCKETS];
};

static PMEMobjpool *pool;
static struct root *root;
static uint64_t pool_id;

static PMEMoid oid_of(uint64_t offset) {
    return (PMEMoid){pool_id, offset};
}

static struct entry *entry_at(uint64_t offset) {
    struct entry *entry = (struct entry *)pmemobj_direct(oid_of(offset));
    REQUIRE(offset < PMEMOBJ_MIN_POOL && entry, "an entry at %lu", offset);
    return entry;
}

static void set_link(uint64_t *link, uint64_t to) {
    *link = to;
    pmemobj_persist(pool, link, sizeof *link);
}

// The link to the key's entry, or the one at the end of its chain.
static uint64_t *find(uint64_t key) {
    uint64_t *link = &root->buckets[mix(key) % BUCKETS];
    while (*link != 0 && entry_at(*link)->key != key)
        link = &entry_at(*link)->next;
    return link;
}

static int construct(PMEMobjpool *in, void *at, void *argument) {
    struct entry *entry = (struct entry *)at;
    *entry = *(const struct entry *)argument; //~[BUG_CONSTRUCT_FLUSH] crash-order|crash-durability
#ifdef BUG_CONSTRUCT_FLUSH
    (void)in;
#else
    pmemobj_persist(in, entry, sizeof *entry);
#endif
    return 0;
}

static void kv_insert(uint64_t key, uint64_t value) {
    uint64_t *link = &root->buckets[mix(key) % BUCKETS];
    struct entry entry = {key, value, *link};
#ifdef BUG_NEXT_LATE
    entry.next = 0;
#endif
    if (pmemobj_alloc(pool, &root->pending, sizeof entry, 1, construct, &entry) != 0)
        abort();
#ifdef BUG_NEXT_LATE
    uint64_t rest = *link;
    set_link(link, root->pending.off);
    set_link(&entry_at(root->pending.off)->next, rest); //~[BUG_NEXT_LATE] crash-order|crash-atomicity|crash-durability
#else
    set_link(link, root->pending.off); //~[BUG_PENDING] crash-order|crash-atomicity|crash-durability
#endif
    root->pending.off = 0;
    pmemobj_persist(pool, &root->pending.off, sizeof(uint64_t));
}

static void kv_update(uint64_t key, uint64_t value) {
    uint64_t *at = &entry_at(*find(key))->value;
    *at = value; //~[BUG_UPDATE_FLUSH] crash-order|crash-durability|crash-atomicity
#ifndef BUG_UPDATE_FLUSH
    pmemobj_persist(pool, at, sizeof *at);
#endif
}

static void kv_remove(uint64_t key) {
    uint64_t *link = find(key);
    PMEMoid old = oid_of(*link);
#ifdef BUG_FREE_FIRST
    uint64_t next = entry_at(*link)->next;
    pmemobj_free(&old);
    set_link(link, next); //~[BUG_FREE_FIRST] crash-order|crash-atomicity|crash-durability
#else
    set_link(link, entry_at(*link)->next);
    pmemobj_free(&old);
#endif
}

static uint64_t kv_get(uint64_t key) {
    uint64_t *link = find(key);
    return *link == 0 ? 0 : entry_at(*link)->value;
}

static uint64_t kv_check(void) {
    uint64_t entries = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (uint64_t at = root->buckets[i]; at != 0; at = entry_at(at)->next, entries++)
            REQUIRE(mix(entry_at(at)->key) % BUCKETS == (uint64_t)i, "key %lu in bucket %d", entry_at(at)->key, i);
    return entries;
}

// Frees what was allocated and not linked.
static void recover(void) {
    uint64_t pending = root->pending.off;
    if (pending == 0)
        return;
#ifndef BUG_PENDING
    for (uint64_t at = root->buckets[mix(entry_at(pending)->key) % BUCKETS]; at != 0; at = entry_at(at)->next)
        if (at == pending) {
            root->pending.off = 0;
            pmemobj_persist(pool, &root->pending.off, sizeof(uint64_t));
            return;
        }
#endif
    root->pending.pool_uuid_lo = pool_id;
    pmemobj_free(&root->pending);
}

static bool kv_open(const char *path, bool create) {
    pool = create && access(path, F_OK) != 0 ? pmemobj_create(path, LAYOUT, PMEMOBJ_MIN_POOL, 0600) : pmemobj_open(path, LAYOUT);
    REQUIRE(pool, "%s: %s", path, pmemobj_errormsg());
    PMEMoid oid = pmemobj_root(pool, sizeof *root);
    root = (struct root *)pmemobj_direct(oid);
    pool_id = oid.pool_uuid_lo;
    recover();
    return true;
}

#ifdef DRIVER
static void kv_leak(void) {
    PMEMoid forgotten;
    if (pmemobj_alloc(pool, &forgotten, sizeof(struct entry), 1, NULL, NULL) != 0)
        abort();
}
#endif
