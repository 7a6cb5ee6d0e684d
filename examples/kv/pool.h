// The pool: a file in persistent memory, mapped where its pointers say, with an allocator and a redo log.
#ifndef POOL_H
#define POOL_H

#include "dict.h"

#include <stdbool.h>

// Opens the pool, or makes it if there is none. Ends what a crash interrupted. After it, pool_claim everything that is
// reachable, before anything is allocated.
bool pool_open(const char *path, size_t size, bool create);
void pool_close(void);

// Where the keyspace begins: its two tables.
struct dict_table **pool_tables(void);

// Memory is aligned to cache lines, so that no two objects share one. Which is in use is known only in DRAM: opening
// finds out by walking what is reachable. So neither takes a flush. NULL when the pool is full.
void *pool_alloc(size_t size);
void pool_free(void *object, size_t size);
// How much an allocation of this size really gets.
size_t pool_usable(size_t size);
// Whether all of it lies in the pool's memory.
bool pool_holds(const void *object, size_t size);
// Says that an object is in use. False if it cannot be: outside of the pool, or overlapping another.
bool pool_claim(const void *object, size_t size);

// A transaction: a few stores of 8 bytes, all of which happen or none. What they are is collected in DRAM.
void pool_tx_begin(void);
void pool_tx_store(void *where, const void *value);
// What `where` will hold after the stores so far.
void *pool_tx_load(void *where);
void pool_tx_commit(void);

#endif
