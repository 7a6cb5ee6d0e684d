/*
 * An example map under crash test. `setup` makes the pool and an empty map, `run` does operations and acknowledges each,
 * `verify` opens what a crash left and demands that the map holds what all acknowledged operations made it hold, or that
 * and the effect of the next one; nothing else.
 */
#include <ex_common.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acknowledged.h"
#include "map.h"
#include "map_btree.h"
#include "map_ctree.h"
#include "map_hashmap_atomic.h"
#include "map_hashmap_rp.h"
#include "map_hashmap_tx.h"
#include "map_rbtree.h"
#include "map_rtree.h"
#include "map_skiplist.h"

POBJ_LAYOUT_BEGIN(map_crash);
POBJ_LAYOUT_ROOT(map_crash, struct root);
POBJ_LAYOUT_TOID(map_crash, struct value);
POBJ_LAYOUT_END(map_crash);

#define KEYS 64
#define MOST_OPERATIONS 1024

struct value {
    uint64_t number;
};

struct root {
    TOID(struct map) map;
    /* What the n-th operation inserts: made by `setup`, because some maps look into the objects that they hold. */
    PMEMoid values[MOST_OPERATIONS];
};

struct operation {
    uint64_t key;
    uint64_t value; /* 0: remove */
};

/* What the n-th operation does to `model`; applies it there. The same in every process. */
static struct operation next_operation(uint64_t *model, long n) {
    static uint64_t seed = 42;
    for (;;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t key = 1 + (seed >> 33) % (KEYS - 1); /* an empty ctree has no room to tell 0 from nothing */
        int remove = (seed >> 20) % 10 < 3;
        if (remove != (model[key] != 0))
            continue;
        model[key] = remove ? 0 : (uint64_t)n + 1;
        return (struct operation){key, model[key]};
    }
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
    fprintf(stderr, "map_crash: %s: %s\n", what, pmemobj_errormsg());
    exit(3);
}

static uint64_t number_of(PMEMoid value) {
    return OID_IS_NULL(value) ? 0 : ((struct value *)pmemobj_direct(value))->number;
}

static int construct(PMEMobjpool *pool, void *pointer, void *argument) {
    struct value *value = pointer;
    value->number = *(uint64_t *)argument;
    pmemobj_persist(pool, value, sizeof(*value));
    return 0;
}

struct contents {
    uint64_t values[KEYS];
    size_t count;
};

static int collect(uint64_t key, PMEMoid value, void *argument) {
    struct contents *found = argument;
    if (key >= KEYS || found->values[key] != 0) {
        fprintf(stderr, "map_crash: key %lu is not one of ours, or is there twice\n", (unsigned long)key);
        exit(1);
    }
    found->values[key] = number_of(value);
    found->count++;
    return 0;
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "map_crash: %s\n", what);
        exit(1);
    }
}

static void verify(struct map_ctx *context, TOID(struct map) map, long operations) {
    expect(map_check(context, map) == 0, "map_check fails");
    struct contents found = {{0}, 0};
    map_foreach(context, map, collect, &found);
    for (uint64_t key = 1; key < KEYS; key++) {
        expect(map_lookup(context, map, key) == (found.values[key] != 0), "lookup and traversal disagree");
        expect(number_of(map_get(context, map, key)) == found.values[key], "get and traversal disagree");
    }
    static uint64_t model[KEYS];
    long done = acknowledged();
    long from = done < 0 ? 0 : done, to = done < 0 ? operations : done + 1;
    for (long n = 0; n < from; n++)
        next_operation(model, n);
    for (long n = from; n <= to && n <= operations; n++) {
        if (memcmp(model, found.values, sizeof(model)) == 0)
            return;
        if (n < operations)
            next_operation(model, n);
    }
    expect(0, "the map holds neither the state before nor the state after the operation that was under way");
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: map_crash setup|run|verify MAP POOL OPERATIONS\n");
        return 2;
    }
    const char *path = argv[3];
    long operations = atol(argv[4]);
    const struct map_ops *ops = ops_of(argv[2]);
    if (ops == NULL || operations > MOST_OPERATIONS)
        fail("no such map, or too many operations");
    int setup = strcmp(argv[1], "setup") == 0, check = strcmp(argv[1], "verify") == 0;
    if (setup)
        unlink(path);
    if (check)
        expect(pmemobj_check(path, POBJ_LAYOUT_NAME(map_crash)) == 1, "pmemobj_check says that the pool is inconsistent");
    PMEMobjpool *pool = setup ? pmemobj_create(path, POBJ_LAYOUT_NAME(map_crash), PMEMOBJ_MIN_POOL, 0600)
                              : pmemobj_open(path, POBJ_LAYOUT_NAME(map_crash));
    if (pool == NULL)
        fail("the pool does not open");
    TOID(struct root) root = POBJ_ROOT(pool, struct root);
    struct map_ctx *context = map_ctx_init(ops, pool);
    if (context == NULL)
        fail("map_ctx_init");
    if (setup) {
        for (uint64_t number = 1; number <= (uint64_t)operations; number++)
            if (pmemobj_alloc(pool, &D_RW(root)->values[number - 1], sizeof(struct value), TOID_TYPE_NUM(struct value),
                              construct, &number) != 0)
                fail("pmemobj_alloc");
        if (map_create(context, &D_RW(root)->map, NULL) != 0)
            fail("map_create");
    } else {
        TOID(struct map) map = D_RO(root)->map;
        if (map_init(context, map) != 0)
            fail("map_init");
        if (check)
            verify(context, map, operations);
        static uint64_t model[KEYS];
        for (long n = 0; !check && n < operations; n++) {
            struct operation operation = next_operation(model, n);
            if (operation.value == 0)
                map_remove(context, map, operation.key);
            else if (map_insert(context, map, operation.key, D_RO(root)->values[n]) != 0)
                fail("map_insert");
            acknowledge();
        }
    }
    map_ctx_free(context);
    pmemobj_close(pool);
    return 0;
}
