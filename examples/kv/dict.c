#include "dict.h"

#include <string.h>

// FNV-1a, and a finaliser, since only the low bits choose the bucket.
uint64_t dict_hash(const void *key, size_t length) {
    const unsigned char *bytes = key;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

size_t dict_table_bytes(uint64_t size) {
    return sizeof(struct dict_table) + size * sizeof(struct dict_entry *);
}

void dict_table_init(struct dict_table *table, uint64_t size) {
    memset(table->buckets, 0, size * sizeof table->buckets[0]);
    table->size = size;
}

void dict_entry_init(struct dict_entry *entry, struct str *key, void *value, uintptr_t kind, uint64_t hash,
                     struct dict_entry *next) {
    entry->next = next;
    entry->key = key;
    entry->value = value;
    entry->kind = kind;
    entry->hash = hash;
}

void dict_set_value(struct dict_entry *entry, void *value) {
    entry->value = value;
}

void dict_link(struct dict_entry **link, struct dict_entry *entry) {
    *link = entry;
}

struct dict_entry **dict_find(const struct dict *dict, const void *key, size_t length, uint64_t hash) {
    for (int i = 0; i < 2; i++) {
        struct dict_table *table = dict->tables[i];
        if (!table)
            break;
        for (struct dict_entry **link = &table->buckets[hash & (table->size - 1)]; *link; link = &(*link)->next) {
            if ((*link)->hash == hash && str_equal((*link)->key, key, length))
                return link;
        }
    }
    return NULL;
}

struct dict_entry **dict_bucket(const struct dict *dict, uint64_t hash) {
    struct dict_table *table = dict->tables[dict->tables[1] != NULL];
    return &table->buckets[hash & (table->size - 1)];
}

bool dict_is_full(const struct dict *dict) {
    return !dict->tables[1] && dict->used >= dict->tables[0]->size;
}

struct dict_entry **dict_next_to_move(struct dict *dict) {
    struct dict_table *from = dict->tables[0];
    while (dict->moved < from->size && !from->buckets[dict->moved])
        dict->moved++;
    return dict->moved < from->size ? &from->buckets[dict->moved] : NULL;
}
