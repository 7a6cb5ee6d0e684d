#ifndef STORE_H
#define STORE_H

#include <stdint.h>

struct store {
    uint64_t count;
    char pad0[56];
    uint64_t root;
    char pad1[56];
    uint64_t values[16][8];
};

void store_put(struct store *store, uint64_t at, uint64_t value);
void index_set(struct store *store, uint64_t root);

#endif
