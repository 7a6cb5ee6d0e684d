#include "db.h"

#include "pm.h"
#include "pool.h"

#include <stdio.h>
#include <string.h>

static struct dict db;

uint64_t db_size(void) {
    return db.used;
}

// ---- Objects. New ones are flushed and not yet fenced: whoever makes them reachable drains before.

static size_t string_bytes(const struct str *s) {
    return sizeof *s + s->capacity;
}

static struct str *new_string(const void *data, size_t length) {
    size_t bytes = pool_usable(sizeof(struct str) + length);
    struct str *s = pool_alloc(bytes);
    if (!s)
        return NULL;
    str_init(s, bytes - sizeof *s, data, length);
    pm_flush(s, sizeof *s + length);
    return s;
}

static void free_string(struct str *s) {
    if (s)
        pool_free(s, string_bytes(s));
}

static struct list_node *new_node(const void *data, size_t length, struct list_node *prev, struct list_node *next) {
    struct str *s = new_string(data, length);
    struct list_node *node = pool_alloc(sizeof *node);
    if (!s || !node) {
        free_string(s);
        if (node)
            pool_free(node, sizeof *node);
        return NULL;
    }
    list_node_init(node, prev, next, s);
    pm_flush(node, sizeof *node);
    return node;
}

static void free_node(struct list_node *node) {
    free_string(node->value);
    pool_free(node, sizeof *node);
}

// A list of one node.
static struct list *new_list(struct list_node *node) {
    struct list *list = pool_alloc(sizeof *list);
    if (!list)
        return NULL;
    list_init(list);
    list_link(list, node);
    pm_flush(list, sizeof *list);
    return list;
}

static void free_value(void *value, uintptr_t kind) {
    if (kind == STRING) {
        free_string(value);
        return;
    }
    struct list *list = value;
    for (struct list_node *node = list->head, *next; node; node = next) {
        next = node->next;
        free_node(node);
    }
    pool_free(list, sizeof *list);
}

static struct dict_entry *new_entry(const struct str *key, void *value, uintptr_t kind, uint64_t hash,
                                    struct dict_entry *next) {
    struct str *name = new_string(key->data, key->length);
    struct dict_entry *entry = pool_alloc(sizeof *entry);
    if (!name || !entry) {
        free_string(name);
        if (entry)
            pool_free(entry, sizeof *entry);
        return NULL;
    }
    dict_entry_init(entry, name, value, kind, hash, next);
    pm_flush(entry, sizeof *entry);
    return entry;
}

static void free_entry(struct dict_entry *entry) {
    free_value(entry->value, entry->kind);
    free_string(entry->key);
    pool_free(entry, sizeof *entry);
}

// ---- Growing.

// Begins to grow if it is time to. Without memory for it the chains get longer, no more.
static void begin_growing(void) {
    uint64_t size = 2 * db.tables[0]->size;
    struct dict_table *larger = pool_alloc(dict_table_bytes(size));
    if (!larger)
        return;
    dict_table_init(larger, size);
    pm_flush(larger, dict_table_bytes(size));
    pm_drain();
    db.tables[1] = larger;
    pm_flush(&db.tables[1], sizeof db.tables[1]);
    pm_drain();
    db.moved = 0;
}

static void end_growing(void) {
    struct dict_table *old = db.tables[0];
    pool_tx_begin();
    pool_tx_store(&db.tables[0], db.tables[1]);
    pool_tx_store(&db.tables[1], NULL);
    pool_tx_commit();
    pool_free(old, dict_table_bytes(old->size));
}

// Moves the entries of one bucket to the larger table.
static void move_some(void) {
    if (dict_is_full(&db))
        begin_growing();
    if (!db.tables[1])
        return;
    struct dict_entry **bucket = dict_next_to_move(&db);
    if (!bucket) {
        end_growing();
        return;
    }
    pool_tx_begin();
    for (struct dict_entry *entry = *bucket; entry; entry = entry->next) {
        struct dict_entry **to = dict_bucket(&db, entry->hash);
        pool_tx_store(&entry->next, pool_tx_load(to));
        pool_tx_store(to, entry);
    }
    pool_tx_store(bucket, NULL);
    pool_tx_commit();
}

// ---- Operations.

struct dict_entry *db_find(const struct str *key, uint64_t hash) {
    struct dict_entry **link = dict_find(&db, key->data, key->length, hash);
    return link ? *link : NULL;
}

// Lets a link of the table point to an entry, or past one.
static void set_link(struct dict_entry **link, struct dict_entry *entry) {
    dict_link(link, entry);
    pm_flush(link, sizeof *link);
    pm_drain();
}

static bool add(const struct str *key, uint64_t hash, void *value, uintptr_t kind) {
    struct dict_entry **bucket = dict_bucket(&db, hash);
    struct dict_entry *entry = new_entry(key, value, kind, hash, *bucket);
    if (!entry)
        return false;
    pm_drain();
    set_link(bucket, entry);
    db.used++;
    return true;
}

static void replace(struct dict_entry *entry, struct str *value) {
    void *old = entry->value;
    uintptr_t old_kind = entry->kind;
    if (old_kind == STRING) {
        pm_drain();
        dict_set_value(entry, value);
        pm_flush(&entry->value, sizeof entry->value);
        pm_drain();
    } else {
        pool_tx_begin();
        pool_tx_store(&entry->value, value);
        pool_tx_store(&entry->kind, (void *)STRING);
        pool_tx_commit();
    }
    free_value(old, old_kind);
}

bool db_set(const struct str *key, uint64_t hash, const void *data, size_t length) {
    move_some();
    struct str *value = new_string(data, length);
    if (!value)
        return false;
    struct dict_entry *entry = db_find(key, hash);
    if (entry) {
        replace(entry, value);
        return true;
    }
    if (add(key, hash, value, STRING))
        return true;
    free_string(value);
    return false;
}

bool db_append(const struct str *key, uint64_t hash, const void *data, size_t length) {
    struct dict_entry *entry = db_find(key, hash);
    if (!entry)
        return db_set(key, hash, data, length);
    if (length == 0)
        return true;
    struct str *s = entry->value;
    size_t longer = s->length + length;
    if (longer <= s->capacity) {
        str_put(s, s->length, data, length);
        pm_flush(s->data + s->length, length);
        pm_drain();
        str_set_length(s, longer);
        pm_flush(&s->length, sizeof s->length);
        pm_drain();
        return true;
    }
    size_t bytes = pool_usable(sizeof *s + 2 * longer);
    struct str *copy = pool_alloc(bytes);
    if (!copy)
        return false;
    str_init(copy, bytes - sizeof *copy, s->data, s->length);
    str_put(copy, copy->length, data, length);
    str_set_length(copy, longer);
    pm_flush(copy, sizeof *copy + longer);
    replace(entry, copy);
    return true;
}

// One store puts the node into the list, the forward link; opening mends the others if a crash comes between.
static void push(struct list *list, struct list_node *node) {
    pm_drain();
    list_link(list, node);
    if (node->prev)
        pm_flush(&node->prev->next, sizeof node->prev->next);
    if (node->next)
        pm_flush(&node->next->prev, sizeof node->next->prev);
    pm_flush(list, sizeof *list);
    pm_drain();
}

bool db_push(const struct str *key, uint64_t hash, const void *data, size_t length, bool at_head) {
    move_some();
    struct dict_entry *entry = db_find(key, hash);
    struct list *list = entry ? entry->value : NULL;
    struct list_node *head = list ? list->head : NULL;
    struct list_node *tail = list ? list->tail : NULL;
    struct list_node *node = new_node(data, length, at_head ? NULL : tail, at_head ? head : NULL);
    if (!node)
        return false;
    if (list) {
        push(list, node);
        return true;
    }
    list = new_list(node);
    if (!list) {
        free_node(node);
        return false;
    }
    if (add(key, hash, list, LIST))
        return true;
    free_value(list, LIST);
    return false;
}

void db_pop(const struct str *key, uint64_t hash, bool at_head) {
    struct dict_entry *entry = db_find(key, hash);
    struct list *list = entry->value;
    struct list_node *node = at_head ? list->head : list->tail;
    if (list->head == list->tail) {
        db_delete(key, hash);
        return;
    }
    list_unlink(list, node);
    if (node->prev)
        pm_flush(&node->prev->next, sizeof node->prev->next);
    if (node->next)
        pm_flush(&node->next->prev, sizeof node->next->prev);
    pm_flush(list, sizeof *list);
    pm_drain();
    free_node(node);
}

bool db_delete(const struct str *key, uint64_t hash) {
    move_some();
    struct dict_entry **link = dict_find(&db, key->data, key->length, hash);
    if (!link)
        return false;
    struct dict_entry *entry = *link;
    set_link(link, entry->next);
    db.used--;
    free_entry(entry);
    return true;
}

// Whether the key of this pair comes again later in the list; the last one counts.
static bool comes_again(struct str **pairs, size_t count, size_t pair) {
    for (size_t i = pair + 1; i < count; i++) {
        if (str_equal(pairs[2 * i], pairs[2 * pair]->data, pairs[2 * pair]->length))
            return true;
    }
    return false;
}

// One pair of a transaction. Returns what is free once it is committed, through `old` and `old_kind`.
static bool set_in_tx(const struct str *key, const struct str *data, void **old, uintptr_t *old_kind) {
    uint64_t hash = dict_hash(key->data, key->length);
    struct str *value = new_string(data->data, data->length);
    if (!value)
        return false;
    struct dict_entry *entry = db_find(key, hash);
    *old = NULL;
    if (entry) {
        *old = entry->value;
        *old_kind = entry->kind;
        pool_tx_store(&entry->value, value);
        if (entry->kind != STRING)
            pool_tx_store(&entry->kind, (void *)STRING);
        return true;
    }
    struct dict_entry **bucket = dict_bucket(&db, hash);
    entry = new_entry(key, value, STRING, hash, pool_tx_load(bucket));
    if (!entry) {
        free_string(value);
        return false;
    }
    pool_tx_store(bucket, entry);
    return true;
}

bool db_set_all(struct str **pairs, size_t count) {
    void *old[count];
    uintptr_t old_kinds[count];
    uint64_t added = 0;
    move_some();
    pool_tx_begin();
    for (size_t i = 0; i < count; i++) {
        old[i] = NULL;
        if (comes_again(pairs, count, i))
            continue;
        // What was allocated before the pool was full is found free when it is opened anew.
        if (!set_in_tx(pairs[2 * i], pairs[2 * i + 1], &old[i], &old_kinds[i]))
            return false;
        added += old[i] == NULL;
    }
    pool_tx_commit();
    db.used += added;
    for (size_t i = 0; i < count; i++) {
        if (old[i])
            free_value(old[i], old_kinds[i]);
    }
    return true;
}

size_t db_scan(const struct str *key, uint64_t hash, struct dict_entry **entries, size_t max) {
    size_t found = 0;
    if (!db_find(key, hash))
        return 0;
    for (int i = 0; i < 2 && db.tables[i]; i++) {
        struct dict_table *table = db.tables[i];
        for (uint64_t n = 0; n < table->size && found < max; n++) {
            struct dict_entry *entry = table->buckets[(hash + n) & (table->size - 1)];
            for (; entry && found < max; entry = entry->next)
                entries[found++] = entry;
        }
    }
    return found;
}

// ---- Opening: walks everything, to check it and to tell the allocator.

static bool corrupt(const char *what) {
    fprintf(stderr, "kv-server: the pool is corrupt: %s\n", what);
    return false;
}

// Reads what a pointer points to only if it points into the pool.
static bool claim_string(const struct str *s) {
    if (!pool_holds(s, sizeof *s) || s->length > s->capacity)
        return corrupt("a string is no string");
    return pool_claim(s, string_bytes(s)) || corrupt("a string overlaps something");
}

// What points backwards follows from what points forwards. Stores only what a crash left wrong.
static void mend_list(struct list *list, struct list_node *tail, uint64_t length) {
    if (list->tail == tail && list->length == length)
        return;
    list->tail = tail;
    list->length = length;
    pm_flush(list, sizeof *list);
    pm_drain();
}

static void mend_node(struct list_node *node, struct list_node *prev) {
    if (node->prev == prev)
        return;
    node->prev = prev;
    pm_flush(&node->prev, sizeof node->prev);
    pm_drain();
}

static bool claim_list(struct list *list) {
    if (!pool_holds(list, sizeof *list) || !pool_claim(list, sizeof *list))
        return corrupt("a list is no list");
    struct list_node *prev = NULL;
    uint64_t length = 0;
    for (struct list_node *node = list->head; node; node = node->next) {
        if (!pool_holds(node, sizeof *node) || !pool_claim(node, sizeof *node))
            return corrupt("a node is no node");
        if (!claim_string(node->value))
            return false;
        mend_node(node, prev);
        prev = node;
        length++;
    }
    if (length == 0)
        return corrupt("a list is empty");
    mend_list(list, prev, length);
    return true;
}

static bool claim_entry(const struct dict_entry *entry) {
    if (!pool_holds(entry, sizeof *entry) || !pool_claim(entry, sizeof *entry))
        return corrupt("an entry is no entry");
    if (!claim_string(entry->key))
        return false;
    if (dict_hash(entry->key->data, entry->key->length) != entry->hash)
        return corrupt("a key has another hash than its entry");
    if (entry->kind > LIST)
        return corrupt("an entry is of no kind");
    return entry->kind == STRING ? claim_string(entry->value) : claim_list(entry->value);
}

static bool claim_table(struct dict_table *table) {
    if (!pool_holds(table, sizeof *table) || table->size == 0 || (table->size & (table->size - 1)) != 0
        || !pool_holds(table, dict_table_bytes(table->size)) || !pool_claim(table, dict_table_bytes(table->size)))
        return corrupt("a table is no table");
    for (uint64_t b = 0; b < table->size; b++) {
        for (struct dict_entry *entry = table->buckets[b]; entry; entry = entry->next) {
            if (!claim_entry(entry))
                return false;
            if ((entry->hash & (table->size - 1)) != b)
                return corrupt("an entry is in a bucket that it does not belong to");
            if (db_find(entry->key, entry->hash) != entry)
                return corrupt("a key is there twice");
            db.used++;
        }
    }
    return true;
}

bool db_open(const char *path, size_t size, bool create) {
    if (!pool_open(path, size, create))
        return false;
    db.tables = pool_tables();
    return claim_table(db.tables[0]) && (!db.tables[1] || claim_table(db.tables[1]));
}

void db_close(void) {
    pool_close();
}
