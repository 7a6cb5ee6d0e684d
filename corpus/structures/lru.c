// A cache of bounded size: an index by key, and a doubly linked list in the order of use, of raw pointers. Looking an item
// up moves it to the front; a new one takes the place of the last.
//
// All pointers that an operation changes are changed together, by a redo log. The file is always mapped at the address that
// its pointers are for.
#include "structure.h"

#define MAGIC 0x75726cu
#define KEYS 96
#define ITEMS 24
#define BUCKETS 16
#define CHANGES 24 // of one operation
#define WORDS 9

struct item {
    _Alignas(LINE) uint64_t key;
    struct item *prev, *next; // towards the most and the least recently used
    struct item *chain;       // in its bucket, or in the list of free items
    uint64_t words[WORDS];    // the value, and what is derived from it
};

struct change {
    struct item **where;
    struct item *to;
};

struct redo_log {
    _Alignas(LINE) uint64_t count; // 0: nothing is to be done
    _Alignas(LINE) struct change changes[CHANGES];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    struct root *self; // where the file must be mapped
    _Alignas(LINE) struct item *first;
    struct item *last;
    struct item *free_items;
    _Alignas(LINE) uint64_t size;
    _Alignas(LINE) struct item *buckets[BUCKETS];
    struct redo_log redo;
    struct item items[ITEMS];
};

static struct root *root;
static struct change pending[CHANGES]; // of the operation under way
static uint64_t pending_count;

// Pointers are read and written through these while an operation is under way.
static struct item *get(struct item **where) {
    for (uint64_t i = pending_count; i-- > 0;)
        if (pending[i].where == where)
            return pending[i].to;
    return *where;
}

static void set(struct item **where, struct item *to) {
    for (uint64_t i = 0; i < pending_count; i++)
        if (pending[i].where == where) {
            pending[i].to = to;
            return;
        }
    REQUIRE(pending_count < CHANGES, "too many changes");
    pending[pending_count++] = (struct change){where, to};
}

static void set_prev(struct item **where, struct item *to) {
#ifdef BUG_PREV_NO_LOG
    *where = to; // "only next is needed to find an item" //~[BUG_PREV_NO_LOG] crash-order|crash-atomicity
    pm_persist(where, sizeof *where);
#else
    set(where, to);
#endif
}

static void end_redo(void) {
    root->redo.count = 0; //~[BUG_SIZE] crash-atomicity|crash-order
    pm_persist(&root->redo.count, sizeof root->redo.count);
}

static bool is_within(const void *at) {
    return (const char *)at >= (const char *)root && (const char *)at < (const char *)(root + 1);
}

static void apply_redo(void) {
    uint64_t count = root->redo.count;
    REQUIRE(count <= CHANGES, "a redo log of %lu changes", count);
#ifdef BUG_REDO_END
    end_redo();
#endif
    for (uint64_t i = 0; i < count; i++) {
        struct change change = root->redo.changes[i];
        REQUIRE(is_within(change.where), "change %lu of the redo log is broken", i);
        *change.where = change.to; //~[BUG_REDO_END] crash-order|crash-atomicity
        //~^[BUG_PREV_NO_LOG] crash-order|crash-atomicity
        pm_flush(change.where, sizeof change.to);
    }
    PM_SFENCE();
#ifndef BUG_REDO_END
    end_redo();
#endif
}

static void commit(void) {
    memcpy(root->redo.changes, pending, pending_count * sizeof pending[0]); //~[BUG_REDO_ORDER] crash-order
    pm_flush(root->redo.changes, pending_count * sizeof pending[0]);
#ifndef BUG_REDO_ORDER
    PM_SFENCE();
#endif
    root->redo.count = pending_count; //~[BUG_SIZE] crash-atomicity|crash-order
    //~^[BUG_PREV_NO_LOG] crash-order|crash-atomicity
    pm_persist(&root->redo.count, sizeof root->redo.count);
    apply_redo();
    pending_count = 0;
}

static struct item **bucket(uint64_t key) {
    return &root->buckets[mix(key) % BUCKETS];
}

// The link that refers to the item, or the one at the chain's end.
static struct item **find(uint64_t key) {
    struct item **link = bucket(key);
    while (get(link) && get(link)->key != key)
        link = &get(link)->chain;
    return link;
}

static void unlink_item(struct item *item) {
    struct item *prev = get(&item->prev), *next = get(&item->next);
    set(prev ? &prev->next : &root->first, next);
    set_prev(next ? &next->prev : &root->last, prev); //~[BUG_PREV_NO_LOG] crash-order|crash-atomicity
}

static void link_first(struct item *item) {
    struct item *first = get(&root->first);
    set(&item->next, first);
    set_prev(&item->prev, NULL); //~[BUG_PREV_NO_LOG] crash-order|crash-atomicity
    set_prev(first ? &first->prev : &root->last, item); //~[BUG_PREV_NO_LOG] crash-order|crash-atomicity
    set(&root->first, item);
}

// An item that is in use by nothing; its value is durable.
static void fill(struct item *item, uint64_t key, uint64_t value) {
    item->key = key;
    for (uint64_t i = 0; i < WORDS; i++)
        item->words[i] = i == 0 ? value : mix(value + i); //~[BUG_VALUE_FLUSH] crash-order|crash-durability
#ifdef BUG_VALUE_FLUSH
    pm_persist(item, LINE);
#else
    pm_persist(item, sizeof *item);
#endif
}

static void release(struct item *item, struct item **link) {
    unlink_item(item);
    set(link, get(&item->chain));
    set(&item->chain, get(&root->free_items));
    set(&root->free_items, item);
}

static uint64_t items_used(void) {
    uint64_t count = 0;
    for (struct item *item = root->first; item; item = item->next)
        REQUIRE(++count <= ITEMS, "the list is a cycle");
    return count;
}

// Not part of the log: opening counts.
static void set_size(uint64_t size) {
    root->size = size; //~[BUG_SIZE] crash-atomicity|crash-order
    pm_persist(&root->size, sizeof root->size);
}

static void put(uint64_t key, uint64_t value) {
    struct item **link = find(key);
    if (*link)
        release(*link, link); // the new value is another item
    else if (!root->free_items) {
        // The last one goes, and is made durable as free before it is filled again.
        release(root->last, find(root->last->key));
        commit();
        set_size(ITEMS - 1);
    }
    // The item that is replaced must not be overwritten before it is replaced, so the free list's next one is taken.
    struct item *item = root->free_items;
    if (!item) {
        // All items are in use and one of them is to be replaced: by itself, in two steps.
        commit();
        set_size(ITEMS - 1);
        item = root->free_items;
    }
    fill(item, key, value);
    if (get(&root->free_items) == item) {
        set(&root->free_items, get(&item->chain));
    } else {
        struct item *replaced = get(&root->free_items);
        set(&replaced->chain, get(&item->chain));
    }
    link = bucket(key);
    set(&item->chain, get(link));
    set(link, item);
    link_first(item);
    commit();
    set_size(items_used());
}

static void touch(uint64_t key) {
    struct item *item = *find(key);
    if (!item || root->first == item)
        return;
    unlink_item(item);
    link_first(item);
    commit();
}

static void drop(uint64_t key) {
    struct item **link = find(key);
    if (!*link)
        return;
    release(*link, link);
    commit();
    set_size(items_used());
}

// The list in both directions, index, free list and size are of the same items.
static void check(void) {
    uint64_t count = 0, in_index = 0, free_count = 0;
    struct item *last = NULL;
    for (struct item *item = root->first; item; last = item, item = item->next) {
        REQUIRE(++count <= ITEMS && is_within(item), "the list is broken");
        REQUIRE(item->prev == last, "key %lu: its predecessor is not the one before it", item->key);
        REQUIRE(*find(item->key) == item, "key %lu is not in the index", item->key);
        for (uint64_t i = 1; i < WORDS; i++)
            REQUIRE(item->words[i] == mix(item->words[0] + i), "the value of key %lu is torn", item->key);
    }
    REQUIRE(root->last == last, "the last item is not the list's last");
    for (uint64_t b = 0; b < BUCKETS; b++)
        for (struct item *item = root->buckets[b]; item; item = item->chain)
            REQUIRE(++in_index <= ITEMS, "the index is broken");
    for (struct item *item = root->free_items; item; item = item->chain)
        REQUIRE(++free_count <= ITEMS, "the free list is broken");
    REQUIRE(in_index == count && free_count == ITEMS - count, "%lu items in the list, %lu in the index, %lu free", count,
            in_index, free_count);
    REQUIRE(root->size == count, "a size of %lu, and %lu items", root->size, count);
}

static void *map_at(const char *path, void *address) {
    int fd = open(path, O_RDWR);
    void *mapped = mmap(address, sizeof *root, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    REQUIRE(mapped == address, "cannot map the file at %p", address);
    close(fd);
    return mapped;
}

static bool open_file(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        if (root->self != root) {
            struct root *self = root->self;
            munmap(root, sizeof *root);
            root = (struct root *)map_at(path, self);
        }
        if (root->redo.count != 0)
            apply_redo();
#ifndef BUG_SIZE
        if (root->size != items_used())
            set_size(items_used());
#endif
        return true;
    }
    if (!create)
        return false;
    memset(root, 0, sizeof *root);
    root->self = root;
    for (uint64_t i = 0; i < ITEMS; i++)
        root->items[i].chain = i + 1 < ITEMS ? &root->items[i + 1] : NULL;
    root->free_items = &root->items[0];
    pm_persist(root, sizeof *root);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}

// The order of use is the state: what the list must hold, most recently used first.
struct order {
    uint64_t count, keys[ITEMS], values[ITEMS];
};

static uint64_t order_find(const struct order *order, uint64_t key) {
    uint64_t at = 0;
    while (at < order->count && order->keys[at] != key)
        at++;
    return at;
}

static void order_remove(struct order *order, uint64_t at) {
    order->count--;
    memmove(order->keys + at, order->keys + at + 1, (order->count - at) * sizeof(uint64_t));
    memmove(order->values + at, order->values + at + 1, (order->count - at) * sizeof(uint64_t));
}

static void order_push(struct order *order, uint64_t key, uint64_t value) {
    memmove(order->keys + 1, order->keys, order->count * sizeof(uint64_t));
    memmove(order->values + 1, order->values, order->count * sizeof(uint64_t));
    order->keys[0] = key;
    order->values[0] = value;
    order->count++;
}

enum action { PUT, TOUCH, DROP };

struct step {
    enum action action;
    uint64_t key, value;
};

static struct step next_step(uint64_t *random) {
    uint64_t choice = next_random(random) % 8;
    struct step step = {choice < 5 ? PUT : choice < 7 ? TOUCH : DROP, 0, 0};
    step.key = 1 + next_random(random) % KEYS;
    step.value = next_random(random) | 1;
    return step;
}

static void order_step(struct order *order, struct step step) {
    uint64_t at = order_find(order, step.key);
    uint64_t value = step.action == PUT || at == order->count ? step.value : order->values[at];
    if (at < order->count)
        order_remove(order, at);
    else if (step.action != PUT)
        return;
    if (step.action == DROP)
        return;
    if (order->count == ITEMS)
        order_remove(order, ITEMS - 1);
    order_push(order, step.key, value);
}

static void load(const char *path, uint64_t operations, uint64_t seed) {
    open_file(path, true);
    for (uint64_t i = 1; i <= operations; i++) {
        struct step step = next_step(&seed);
        switch (step.action) {
        case PUT: put(step.key, step.value); break;
        case TOUCH: touch(step.key); break;
        case DROP: drop(step.key); break;
        }
        acknowledge(i);
    }
}

static bool matches(const struct order *order) {
    uint64_t i = 0;
    for (struct item *item = root->first; item; item = item->next, i++)
        if (i == order->count || item->key != order->keys[i] || item->words[0] != order->values[i])
            return false;
    return i == order->count;
}

static void verify(const char *path, const char *seed) {
    uint64_t done = acknowledged();
    if (!open_file(path, false)) {
        REQUIRE(done == 0, "there is nothing, and %lu operations were acknowledged", done);
        return;
    }
    check();
    if (!seed || !getenv("CRASHPROOF_OUTPUT"))
        return;
    struct order before = {0}, after, evicted;
    uint64_t random = strtoull(seed, NULL, 0);
    for (uint64_t i = 0; i < done; i++)
        order_step(&before, next_step(&random));
    struct step step = next_step(&random);
    after = evicted = before;
    order_step(&after, step);
    // A cache may forget: what has to make room is gone before the new item is there.
    if (step.action == PUT && before.count == ITEMS) {
        uint64_t at = order_find(&before, step.key);
        order_remove(&evicted, at < ITEMS ? at : ITEMS - 1);
    }
    REQUIRE(matches(&before) || matches(&after) || matches(&evicted), "the items are not those of %lu operations", done);
}

#include "load_verify.h"
