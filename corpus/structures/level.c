// Level hashing: two levels of buckets, the upper twice as large as the lower; a key has two places in each. When there is no
// room, a new upper level is made, the lower level's items move into it, and the old upper level becomes the lower one.
//
// A bucket's slots are taken if their token is set. All tokens of a bucket are one word.
#include "kv.h"

#define KEYS_PER_BUCKET 3
#define MAGIC 0x6c6576656cu
#define LEVELS 8 // of 2, 4, … buckets

struct item {
    uint64_t key, value;
};

struct bucket {
    _Alignas(LINE) uint64_t tokens; // byte i is 1: slot i is taken
    struct item items[KEYS_PER_BUCKET];
    uint64_t moved; // how many items were displaced from here, for statistics
};

struct level {
    struct bucket buckets[2 << (LEVELS - 1)];
};

// What is changed in place is kept here until it is durable.
struct update_log {
    _Alignas(LINE) uint64_t target; // offset of the item; 0: none
    struct item old;
};

struct geometry {
    uint32_t upper;  // index into levels, and the number of buckets is 2 << upper
    uint32_t moving; // 1: the items of the lower level are on their way to levels[upper + 1]
};

union packed {
    struct geometry geometry;
    uint64_t word;
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) union packed packed; // changed by one store
    struct update_log log;
    struct level levels[LEVELS];
};

static struct root *root;

static uint64_t buckets_of(uint32_t level) {
    return 2ull << level;
}

static struct bucket *place(uint32_t level, uint64_t key, int which) {
    uint64_t hash = which ? mix(key ^ 0x5bd1e995) : mix(key);
    return &root->levels[level].buckets[hash & (buckets_of(level) - 1)];
}

static bool taken(const struct bucket *bucket, int slot) {
    return bucket->tokens >> (8 * slot) & 1;
}

static int free_slot(const struct bucket *bucket) {
    for (int slot = 0; slot < KEYS_PER_BUCKET; slot++)
        if (!taken(bucket, slot))
            return slot;
    return -1;
}

static void set_tokens(struct bucket *bucket, uint64_t tokens) {
    bucket->tokens = tokens;
    pm_persist(&bucket->tokens, sizeof bucket->tokens);
}

static void set_geometry(uint32_t upper, uint32_t moving) {
    union packed packed = {.geometry = {upper, moving}};
#ifdef BUG_SWITCH_PAIR
    *(volatile uint32_t *)&root->packed.geometry.moving = packed.geometry.moving;
    *(volatile uint32_t *)&root->packed.geometry.upper = packed.geometry.upper; //~[BUG_SWITCH_PAIR] crash-atomicity|crash-order
#else
    root->packed.word = packed.word;
#endif
    pm_persist(&root->packed, sizeof root->packed);
}

// Fills a free slot: first the item, then its token.
static void fill(struct bucket *bucket, int slot, struct item item) {
#ifdef BUG_INSERT_ORDER
    bucket->tokens |= 1ull << (8 * slot);
    PM_BARRIER();
    bucket->items[slot] = item; //~[BUG_INSERT_ORDER] crash-order
    pm_persist(bucket, sizeof *bucket);
#else
    bucket->items[slot] = item;
    pm_persist(&bucket->items[slot], sizeof item);
    set_tokens(bucket, bucket->tokens | 1ull << (8 * slot));
#endif
}

static void clear(struct bucket *bucket, int slot) {
    set_tokens(bucket, bucket->tokens & ~(1ull << (8 * slot)));
}

// Displaces an item of a full bucket to its other place in the same level.
static int make_room(uint32_t level, struct bucket *bucket) {
    for (int slot = 0; slot < KEYS_PER_BUCKET; slot++) {
        struct item item = bucket->items[slot];
        struct bucket *other = place(level, item.key, 0) == bucket ? place(level, item.key, 1) : place(level, item.key, 0);
        int to = other == bucket ? -1 : free_slot(other);
        if (to < 0)
            continue;
#ifdef BUG_MOVE_ORDER
        clear(bucket, slot); // the item is nowhere for a moment
        fill(other, to, item); //~[BUG_MOVE_ORDER] crash-atomicity|crash-order|crash-durability
#else
        fill(other, to, item);
        clear(bucket, slot);
#endif
        bucket->moved++;
        pm_persist(&bucket->moved, sizeof bucket->moved);
        return slot;
    }
    return -1;
}

static bool insert_into(uint32_t level, struct item item, bool displace) {
    for (int which = 0; which < 2; which++) {
        struct bucket *bucket = place(level, item.key, which);
        int slot = free_slot(bucket);
        if (slot >= 0) {
            fill(bucket, slot, item);
            return true;
        }
    }
    for (int which = 0; displace && which < 2; which++) {
        struct bucket *bucket = place(level, item.key, which);
        int slot = make_room(level, bucket);
        if (slot >= 0) {
            fill(bucket, slot, item);
            return true;
        }
    }
    return false;
}

static uint32_t upper_level(void) {
    return root->packed.geometry.upper;
}

// Looks in levels `from` down to `to`; the bucket and slot of the key.
static struct bucket *find_in(uint32_t from, uint32_t to, uint64_t key, int *slot) {
    for (uint32_t level = from + 1; level-- > to;)
        for (int which = 0; which < 2; which++) {
            struct bucket *bucket = place(level, key, which);
            for (*slot = 0; *slot < KEYS_PER_BUCKET; ++*slot)
                if (taken(bucket, *slot) && bucket->items[*slot].key == key)
                    return bucket;
        }
    return NULL;
}

static struct bucket *find(uint64_t key, int *slot) {
    return find_in(upper_level(), upper_level() - 1, key, slot);
}

// Each item of the lower level moves to the new upper one. It may have arrived there before a crash.
static void move_lower(void) {
    uint32_t upper = upper_level();
    struct level *lower = &root->levels[upper - 1];
    for (uint64_t i = 0; i < buckets_of(upper - 1); i++) {
        struct bucket *bucket = &lower->buckets[i];
        for (int slot = 0; slot < KEYS_PER_BUCKET; slot++) {
            if (!taken(bucket, slot))
                continue;
            int there;
            if (!find_in(upper + 1, upper + 1, bucket->items[slot].key, &there))
                REQUIRE(insert_into(upper + 1, bucket->items[slot], true), "there is no room in the new level");
            clear(bucket, slot);
        }
    }
    set_geometry(upper + 1, 0);
}

static void expand(void) {
    uint32_t upper = upper_level();
    REQUIRE(upper + 1 < LEVELS, "the table is full");
#ifndef BUG_REHASH_STATE
    set_geometry(upper, 1);
#endif
    move_lower(); //~[BUG_REHASH_STATE] crash-atomicity|crash-order|crash-durability
}

static void kv_insert(uint64_t key, uint64_t value) {
    struct item item = {key, value};
    for (;;) {
        if (insert_into(upper_level(), item, true) || insert_into(upper_level() - 1, item, false))
            return;
        expand();
    }
}

// Into a free slot of the same bucket, by one store to both tokens; in place, with a log, if there is none.
static void kv_update(uint64_t key, uint64_t value) {
    int slot;
    struct bucket *bucket = find(key, &slot);
    struct item item = {key, value};
    int to = free_slot(bucket);
    if (to >= 0) {
        bucket->items[to] = item;
        pm_persist(&bucket->items[to], sizeof item);
#ifdef BUG_TOKEN_PAIR
        volatile uint8_t *tokens = (volatile uint8_t *)&bucket->tokens;
        tokens[slot] = 0;
        tokens[to] = 1; //~[BUG_TOKEN_PAIR] crash-atomicity|crash-order|crash-durability
        pm_persist(&bucket->tokens, sizeof bucket->tokens);
#else
        set_tokens(bucket, (bucket->tokens & ~(1ull << (8 * slot))) | 1ull << (8 * to));
#endif
        return;
    }
    root->log.old = bucket->items[slot]; //~[BUG_LOG_ORDER] crash-order|crash-atomicity
    pm_flush(&root->log.old, sizeof root->log.old);
    PM_SFENCE();
    root->log.target = (uint64_t)((char *)&bucket->items[slot] - (char *)root); //~[BUG_LOG_ORDER] crash-order|crash-atomicity
#ifndef BUG_LOG_ORDER
    pm_persist(&root->log.target, sizeof root->log.target);
#endif
    bucket->items[slot].key = 0; // not to be found half
    PM_BARRIER();
    bucket->items[slot] = item;
    pm_persist(&bucket->items[slot], sizeof item);
    root->log.target = 0;
    pm_persist(&root->log.target, sizeof root->log.target);
}

static void kv_remove(uint64_t key) {
    int slot;
    struct bucket *bucket = find(key, &slot);
    clear(bucket, slot);
}

static uint64_t kv_get(uint64_t key) {
    int slot;
    struct bucket *bucket = find(key, &slot);
    return bucket ? bucket->items[slot].value : 0;
}

static uint64_t kv_check(void) {
    uint64_t items = 0;
    bool seen[KEYS + 1] = {false};
    for (uint32_t level = upper_level() - 1; level <= upper_level(); level++) {
        for (uint64_t i = 0; i < buckets_of(level); i++) {
            struct bucket *bucket = &root->levels[level].buckets[i];
            for (int slot = 0; slot < KEYS_PER_BUCKET; slot++) {
                if (!taken(bucket, slot))
                    continue;
                uint64_t key = bucket->items[slot].key;
                REQUIRE(key >= 1 && key <= KEYS, "a taken slot with key %lu", key);
                REQUIRE(place(level, key, 0) == bucket || place(level, key, 1) == bucket, "key %lu is misplaced", key);
                REQUIRE(!seen[key], "key %lu is there twice", key);
                seen[key] = true;
                items++;
            }
        }
    }
    return items;
}

// A displacement that was under way has left its item twice.
static void remove_duplicates(void) {
    for (uint32_t level = upper_level() - 1; level <= upper_level(); level++)
        for (uint64_t i = 0; i < buckets_of(level); i++) {
            struct bucket *bucket = &root->levels[level].buckets[i];
            for (int slot = 0; slot < KEYS_PER_BUCKET; slot++) {
                if (!taken(bucket, slot))
                    continue;
                uint64_t key = bucket->items[slot].key;
                struct bucket *other = place(level, key, 0) == bucket ? place(level, key, 1) : place(level, key, 0);
                for (int there = 0; other != bucket && there < KEYS_PER_BUCKET; there++)
                    if (taken(other, there) && other->items[there].key == key)
                        clear(other, there);
            }
        }
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        REQUIRE(upper_level() >= 1 && upper_level() < LEVELS, "a table of %u levels", upper_level());
        if (root->log.target != 0) {
            struct item *item = (struct item *)((char *)root + root->log.target);
            *item = root->log.old;
            pm_persist(item, sizeof *item);
            root->log.target = 0;
            pm_persist(&root->log.target, sizeof root->log.target);
        }
        remove_duplicates();
        if (root->packed.geometry.moving)
            move_lower();
        return true;
    }
    if (!create)
        return false;
    set_geometry(1, 0);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
