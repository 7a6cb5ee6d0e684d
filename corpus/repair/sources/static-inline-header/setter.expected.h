#ifndef SETTER_H
#define SETTER_H

#include <stdint.h>
#include "persist.h"

struct cell {
    uint64_t value;
    uint64_t pad[7];
};

static inline void cell_set(struct cell *cell, uint64_t value) {
    cell->value = value;
    pm_persist(&cell->value, sizeof(cell->value));
}

void first(struct cell *cells);
void second(struct cell *cells);

#endif
