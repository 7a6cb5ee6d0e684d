// A hash table with linear probing. A slot is taken by its key, which becomes durable after the value. Removal leaves a tombstone;
// when few slots are free, the entries are written to the other of two areas, larger if need be, to which one store switches.
#include "../structures/kv.h"

#define MAGIC 0x7261656e696cu
#define FIRST_BITS 4
#define LAST_BITS 10
#define TOMBSTONE UINT64_MAX

struct area {
    _Alignas(LINE) uint64_t keys[1 << LAST_BITS]; // 0: never taken
    _Alignas(LINE) uint64_t values[1 << LAST_BITS];
};

struct geometry {
    uint32_t area, bits; // there are 1 << bits slots
};

struct root {
    _Alignas(LINE) uint64_t magic;
#ifdef BUG_GEOMETRY_PAIR
    _Alignas(LINE) volatile uint32_t area;
    _Alignas(LINE) volatile uint32_t bits;
#else
    _Alignas(LINE) uint64_t geometry; // changed by one store
#endif
    struct area areas[2];
};

static struct root *root;
static uint64_t taken, live; // slots that are not 0, and those that have an entry

static struct geometry geometry(void) {
    struct geometry geometry;
#ifdef BUG_GEOMETRY_PAIR
    geometry.area = root->area;
    geometry.bits = root->bits;
#else
    memcpy(&geometry, &root->geometry, sizeof geometry);
#endif
    REQUIRE(geometry.area < 2 && geometry.bits <= LAST_BITS, "area %u of 1 << %u slots", geometry.area, geometry.bits);
    return geometry;
}

static void set_geometry(struct geometry geometry) {
#ifdef BUG_GEOMETRY_PAIR
    root->bits = geometry.bits; //~[BUG_GEOMETRY_PAIR] crash-atomicity|crash-order
    pm_flush((void *)&root->bits, sizeof root->bits);
    root->area = geometry.area; //~[BUG_GEOMETRY_PAIR] crash-atomicity|crash-order
    pm_persist((void *)&root->area, sizeof root->area);
#else
    memcpy(&root->geometry, &geometry, sizeof geometry);
    pm_persist(&root->geometry, sizeof root->geometry);
#endif
}

static struct area *area(void) {
    return &root->areas[geometry().area];
}

static uint64_t mask(void) {
    return (1ull << geometry().bits) - 1;
}

// The slot of the key; if it is not there, the first one that was never taken.
static uint64_t find(const struct area *area, uint64_t mask, uint64_t key) {
    uint64_t i = mix(key) & mask;
    for (uint64_t steps = 0; area->keys[i] != 0 && area->keys[i] != key; steps++) {
        REQUIRE(steps <= mask, "no slot of the table is free");
        i = (i + 1) & mask;
    }
    return i;
}

static void rehash(void) {
    struct geometry from = geometry(), to = {!from.area, from.bits};
    struct area *old = &root->areas[from.area], *new_area = &root->areas[to.area];
    if (live >= 1ull << (from.bits - 1))
        to.bits++;
    REQUIRE(to.bits <= LAST_BITS, "the table is full");
    uint64_t slots = 1ull << to.bits;
    memset(new_area->keys, 0, slots * sizeof(uint64_t));
#ifdef BUG_RESIZE_MOVE
    pm_persist(new_area->keys, slots * sizeof(uint64_t));
#endif
    for (uint64_t i = 0; i < 1ull << from.bits; i++) {
        if (old->keys[i] == 0 || old->keys[i] == TOMBSTONE)
            continue;
        uint64_t at = find(new_area, slots - 1, old->keys[i]);
        new_area->values[at] = old->values[i]; //~[BUG_RESIZE_ORDER] crash-order|crash-durability
        //~^[BUG_RESIZE_FLUSH] crash-order|crash-durability
        new_area->keys[at] = old->keys[i]; //~[BUG_RESIZE_ORDER] crash-order|crash-durability
#ifdef BUG_RESIZE_MOVE // empties the old area on the way
        pm_flush(&new_area->values[at], sizeof(uint64_t));
        pm_persist(&new_area->keys[at], sizeof(uint64_t));
        old->keys[i] = TOMBSTONE;
        pm_persist(&old->keys[i], sizeof(uint64_t));
#endif
    }
#ifdef BUG_RESIZE_ORDER
    set_geometry(to);
#endif
#ifndef BUG_RESIZE_FLUSH
    pm_flush(new_area->values, slots * sizeof(uint64_t));
#endif
    pm_persist(new_area->keys, slots * sizeof(uint64_t));
#ifndef BUG_RESIZE_ORDER
    set_geometry(to); //~[BUG_RESIZE_MOVE] crash-atomicity|crash-order|crash-durability
#endif
    taken = live;
}

static void kv_insert(uint64_t key, uint64_t value) {
    if (taken + 1 >= 3ull << (geometry().bits - 2))
        rehash();
    struct area *to = area();
    uint64_t i = find(to, mask(), key);
#ifdef BUG_INSERT_ORDER
    to->keys[i] = key;
    pm_persist(&to->keys[i], sizeof(uint64_t));
    to->values[i] = value; //~[BUG_INSERT_ORDER] crash-order|crash-atomicity|crash-durability
    pm_persist(&to->values[i], sizeof(uint64_t));
#else
    to->values[i] = value; //~[BUG_INSERT_FLUSH] crash-order|crash-durability
#ifndef BUG_INSERT_FLUSH
    pm_persist(&to->values[i], sizeof(uint64_t));
#endif
    to->keys[i] = key;
    pm_persist(&to->keys[i], sizeof(uint64_t));
#endif
    taken++;
    live++;
}

static void kv_update(uint64_t key, uint64_t value) {
    uint64_t *at = &area()->values[find(area(), mask(), key)];
    *at = value;
    pm_persist(at, sizeof *at);
}

static void kv_remove(uint64_t key) {
    uint64_t *at = &area()->keys[find(area(), mask(), key)];
    *at = TOMBSTONE; //~[BUG_REMOVE_FLUSH] crash-order|crash-durability
#ifndef BUG_REMOVE_FLUSH
    pm_persist(at, sizeof *at);
#endif
    live--;
}

static uint64_t kv_get(uint64_t key) {
    uint64_t i = find(area(), mask(), key);
    return area()->keys[i] == key ? area()->values[i] : 0;
}

static uint64_t kv_check(void) {
    for (uint64_t i = 0; i <= mask(); i++) {
        uint64_t key = area()->keys[i];
        REQUIRE(key <= KEYS || key == TOMBSTONE, "key %lu", key);
        REQUIRE(key == 0 || key == TOMBSTONE || find(area(), mask(), key) == i, "key %lu is there twice", key);
    }
    return live;
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        for (uint64_t i = 0; i <= mask(); i++) {
            taken += area()->keys[i] != 0;
            live += area()->keys[i] != 0 && area()->keys[i] != TOMBSTONE;
        }
        return true;
    }
    if (!create)
        return false;
    set_geometry((struct geometry){0, FIRST_BITS});
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
