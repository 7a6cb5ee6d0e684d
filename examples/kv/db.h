// The keyspace: strings and lists by key, in the pool. When a function returns, what it did is durable; a crash in it
// leaves all of it or nothing.
#ifndef DB_H
#define DB_H

#include "dict.h"
#include "list.h"

enum kind { STRING, LIST };

// Opens the pool and checks all that is in it. False, with a message, if that cannot be done.
bool db_open(const char *path, size_t size, bool create);
void db_close(void);
uint64_t db_size(void);

struct dict_entry *db_find(const struct str *key, uint64_t hash);

// These return false when the pool is full, and change nothing then.
bool db_set(const struct str *key, uint64_t hash, const void *data, size_t length);
// For a key that is a string or not there.
bool db_append(const struct str *key, uint64_t hash, const void *data, size_t length);
// For a key that is a list or not there.
bool db_push(const struct str *key, uint64_t hash, const void *data, size_t length, bool at_head);
// All of the `count` pairs (key, value, key, value …) or none.
bool db_set_all(struct str **pairs, size_t count);

// False if the key is not there.
bool db_delete(const struct str *key, uint64_t hash);
// Removes an element of a list, which is not empty, and the list with the last of them.
void db_pop(const struct str *key, uint64_t hash, bool at_head);

// The entries from a key's bucket on, in the order of the table, at most `max`; returns how many.
size_t db_scan(const struct str *key, uint64_t hash, struct dict_entry **entries, size_t max);

#endif
