/*
 * Drives one of the example maps: mixed inserts, lookups and removals, with a model beside it that says what must come
 * back. Prints one line that depends on every result, so that a recorded run can be compared with a native one.
 */
#include <ex_common.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "map_btree.h"
#include "map_ctree.h"
#include "map_hashmap_atomic.h"
#include "map_hashmap_rp.h"
#include "map_hashmap_tx.h"
#include "map_rbtree.h"
#include "map_rtree.h"
#include "map_skiplist.h"

POBJ_LAYOUT_BEGIN(map_driver);
POBJ_LAYOUT_ROOT(map_driver, struct root);
POBJ_LAYOUT_TOID(map_driver, struct value);
POBJ_LAYOUT_END(map_driver);

struct root {
    TOID(struct map) map;
};

struct value {
    uint64_t number;
};

#define KEYS 700

static uint64_t seed = 42;

static uint64_t next_random(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static int construct(PMEMobjpool *pool, void *pointer, void *argument) {
    struct value *value = pointer;
    value->number = *(uint64_t *)argument;
    pmemobj_persist(pool, &value->number, sizeof(value->number));
    return 0;
}

static const struct map_ops *ops_of(const char *name) {
    static const struct {
        const char *name;
        const struct map_ops *ops;
    } maps[] = {
        {"btree", MAP_BTREE},     {"ctree", MAP_CTREE},           {"rbtree", MAP_RBTREE},
        {"rtree", MAP_RTREE},     {"hashmap_tx", MAP_HASHMAP_TX}, {"hashmap_atomic", MAP_HASHMAP_ATOMIC},
        {"skiplist", MAP_SKIPLIST}, {"hashmap_rp", MAP_HASHMAP_RP},
    };
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
        if (strcmp(maps[i].name, name) == 0)
            return maps[i].ops;
    return NULL;
}

static void fail(const char *what) {
    fprintf(stderr, "map_driver: %s: %s\n", what, pmemobj_errormsg());
    exit(3);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: map_driver MAP POOL OPERATIONS\n");
        return 2;
    }
    const struct map_ops *ops = ops_of(argv[1]);
    if (ops == NULL)
        fail("no such map");
    PMEMobjpool *pool = pmemobj_create(argv[2], POBJ_LAYOUT_NAME(map_driver), PMEMOBJ_MIN_POOL * 8, 0600);
    if (pool == NULL)
        fail("pmemobj_create");
    TOID(struct root) root = POBJ_ROOT(pool, struct root);
    struct map_ctx *context = map_ctx_init(ops, pool);
    if (context == NULL || map_create(context, &D_RW(root)->map, NULL) != 0)
        fail("map_create");

    static uint64_t model[KEYS];
    uint64_t sum = 0;
    long operations = atol(argv[3]);
    for (long i = 1; i <= operations; i++) {
        uint64_t key = next_random() % KEYS;
        uint64_t what = next_random() % 10;
        TOID(struct map) map = D_RO(root)->map;
        if (what < 6 && model[key] == 0) {
            uint64_t number = (uint64_t)i;
            PMEMoid value;
            if (pmemobj_alloc(pool, &value, sizeof(struct value), TOID_TYPE_NUM(struct value), construct, &number) != 0)
                fail("pmemobj_alloc");
            if (map_insert(context, map, key, value) != 0)
                fail("map_insert");
            model[key] = number;
        } else if (what < 8) {
            PMEMoid found = map_get(context, map, key);
            if (OID_IS_NULL(found) != (model[key] == 0))
                fail("map_get disagrees with the model");
            if (!OID_IS_NULL(found))
                sum = sum * 31 + ((struct value *)pmemobj_direct(found))->number;
        } else if (model[key] != 0) {
            PMEMoid removed = map_remove(context, map, key);
            if (OID_IS_NULL(removed))
                fail("map_remove");
            pmemobj_free(&removed);
            model[key] = 0;
        }
        if (map_lookup(context, D_RO(root)->map, key) != (model[key] != 0))
            fail("map_lookup disagrees with the model");
    }
    size_t present = 0;
    for (size_t key = 0; key < KEYS; key++)
        present += model[key] != 0;
    printf("%s: %ld operations, %zu keys, sum %016lx\n", argv[1], operations, present, (unsigned long)sum);
    map_ctx_free(context);
    pmemobj_close(pool);
    return 0;
}
