// What those structures share that map keys to values: with -DDRIVER they are drivers of operations (docs/drivers.md), else the
// programs `load` and `verify` of structure.h.
#ifndef KV_H
#define KV_H

#include "kv_model.h"

// What a structure implements. `kv_open` maps the file; if it holds no complete structure it makes one, if `create` says
// so, and else returns false; if it holds one, it recovers it.
static bool kv_open(const char *path, bool create);
static void kv_insert(uint64_t key, uint64_t value);
static void kv_update(uint64_t key, uint64_t value);
static void kv_remove(uint64_t key);
// The value; 0 if the key is not there.
static uint64_t kv_get(uint64_t key);
// Checks all invariants; the number of entries.
static uint64_t kv_check(void);

#ifdef DRIVER

#include "kv_driver.h"

#else

static inline void kv_apply(struct op op) {
    switch (op.kind) {
    case INSERT: kv_insert(op.key, op.value); break;
    case UPDATE: kv_update(op.key, op.value); break;
    case REMOVE: kv_remove(op.key); break;
    }
}

static inline void load(const char *path, uint64_t operations, uint64_t seed) {
    kv_open(path, true);
    struct model model;
    memset(&model, 0, sizeof model);
    model.random = seed;
    for (uint64_t key = 1; key <= KEYS; key++) {
        model.values[key] = kv_get(key);
        model.used += model.values[key] != 0;
    }
    for (uint64_t i = 1; i <= operations; i++) {
        kv_apply(model_next(&model));
        acknowledge(i);
    }
}

static inline void verify(const char *path, const char *seed) {
    uint64_t done = acknowledged();
    if (!getenv("CRASHPROOF_OUTPUT"))
        seed = NULL; // who knows how many operations there were
    if (!kv_open(path, false)) {
        REQUIRE(done == 0, "there is nothing, and %lu operations were acknowledged", done);
        return;
    }
    uint64_t entries = kv_check();
    struct model before;
    memset(&before, 0, sizeof before);
    before.random = seed ? strtoull(seed, NULL, 0) : 0;
    for (uint64_t i = 0; seed && i < done; i++)
        model_next(&before);
    // The operation that was under way is done or not done.
    struct model after = before;
    struct op last = model_next(&after);
    uint64_t got = kv_get(last.key);
    struct model *expected = got == after.values[last.key] ? &after : &before;
    uint64_t found = 0;
    for (uint64_t key = 1; key <= KEYS; key++) {
        uint64_t value = kv_get(key);
        found += value != 0;
        REQUIRE(!seed || value == expected->values[key], "key %lu has value %lx instead of %lx", key, value,
                expected->values[key]);
    }
    REQUIRE(found == entries, "%lu keys are found, and there are %lu entries", found, entries);
}

#include "load_verify.h"

#endif
#endif
