// Random operations on a map, and what the map then holds: inserts of unused keys, updates and removals of used ones.
#ifndef KV_MODEL_H
#define KV_MODEL_H

#include "structure.h"

// Keys are 1 to KEYS; a value is never 0.
#ifndef KEYS
#define KEYS 256
#endif

struct model {
    uint64_t random, used;
    uint64_t values[KEYS + 1];
};

enum kind { INSERT, UPDATE, REMOVE };

struct op {
    enum kind kind;
    uint64_t key, value;
};

// The next operation, which the model undergoes at once.
static inline struct op model_next(struct model *model) {
    struct op op;
    uint64_t choice = next_random(&model->random) % 8;
    op.kind = choice < 4 ? INSERT : choice < 6 ? UPDATE : REMOVE;
    if (op.kind == INSERT && model->used > KEYS * 3 / 4)
        op.kind = REMOVE;
    if (op.kind != INSERT && model->used == 0)
        op.kind = INSERT;
    uint64_t at = next_random(&model->random) % KEYS;
    while ((model->values[at + 1] != 0) != (op.kind != INSERT))
        at = (at + 1) % KEYS;
    op.key = at + 1;
    op.value = op.kind == REMOVE ? 0 : next_random(&model->random) | 1;
    model->used += op.kind == INSERT;
    model->used -= op.kind == REMOVE;
    model->values[op.key] = op.value;
    return op;
}

#endif
