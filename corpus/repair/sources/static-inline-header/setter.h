#ifndef SETTER_H
#define SETTER_H

#include <stdint.h>

struct cell {
    uint64_t value;
    uint64_t pad[7];
};

static inline void cell_set(struct cell *cell, uint64_t value) {
    cell->value = value;
}

void first(struct cell *cells);
void second(struct cell *cells);

#endif
