// Hash tables with chaining that grow a bucket at a time. The keyspace in the pool (db.c) and the access counts in DRAM
// (hot.c) are made of the same parts.
#ifndef DICT_H
#define DICT_H

#include "str.h"

struct dict_entry {
    struct dict_entry *next;
    struct str *key;
    void *value;
    uintptr_t kind; // what `value` is; the user's
    uint64_t hash;
};

struct dict_table {
    uint64_t size; // a power of two
    struct dict_entry *buckets[];
};

// The tables lie where the user keeps them. While the second is there, entries are on their way to it, and new ones go
// there at once.
struct dict {
    struct dict_table **tables; // two
    uint64_t used;
    uint64_t moved; // buckets of the first table that are empty now
};

uint64_t dict_hash(const void *key, size_t length);
size_t dict_table_bytes(uint64_t size);
void dict_table_init(struct dict_table *table, uint64_t size);

void dict_entry_init(struct dict_entry *entry, struct str *key, void *value, uintptr_t kind, uint64_t hash,
                     struct dict_entry *next);
void dict_set_value(struct dict_entry *entry, void *value);
// Stores what points to an entry: this is what adds it or takes it out.
void dict_link(struct dict_entry **link, struct dict_entry *entry);

// What points to the entry of this key; NULL if it is not there.
struct dict_entry **dict_find(const struct dict *dict, const void *key, size_t length, uint64_t hash);
// The bucket that a new entry goes to.
struct dict_entry **dict_bucket(const struct dict *dict, uint64_t hash);
// Whether it is time for a table of twice the size.
bool dict_is_full(const struct dict *dict);
// The first bucket of the first table that still has entries to be moved; NULL if none has.
struct dict_entry **dict_next_to_move(struct dict *dict);

#endif
