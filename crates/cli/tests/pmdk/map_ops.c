/*
 * An example map as a driver of operations (docs/drivers.md): -DMAP=MAP_BTREE says which. What is inserted are objects that were made with
 * the pool, because some maps look into the objects that they hold.
 */
#include "../../../../include/crashproof_driver.h"

#include <ex_common.h>
#include <libpmemobj.h>

#include "map.h"
#include "map_btree.h"
#include "map_ctree.h"
#include "map_hashmap_atomic.h"
#include "map_hashmap_rp.h"
#include "map_hashmap_tx.h"
#include "map_rbtree.h"
#include "map_rtree.h"
#include "map_skiplist.h"

POBJ_LAYOUT_BEGIN(map_ops);
POBJ_LAYOUT_ROOT(map_ops, struct root);
POBJ_LAYOUT_TOID(map_ops, struct value);
POBJ_LAYOUT_END(map_ops);

#define VALUES 200

struct value {
    uint64_t number;
};

struct root {
    TOID(struct map) map;
    PMEMoid values[VALUES];
};

static TOID(struct root) root;
static struct map_ctx *context;

static void fail(const char *what) {
    fprintf(stderr, "map_ops: %s: %s\n", what, pmemobj_errormsg());
    exit(3);
}

static int construct(PMEMobjpool *pool, void *pointer, void *argument) {
    struct value *value = pointer;
    value->number = *(uint64_t *)argument;
    pmemobj_persist(pool, value, sizeof(*value));
    return 0;
}

static void open_pool(const char *path, int create) {
    const char *layout = POBJ_LAYOUT_NAME(map_ops);
    PMEMobjpool *pool = create ? pmemobj_create(path, layout, PMEMOBJ_MIN_POOL, 0600) : pmemobj_open(path, layout);
    if (pool == NULL)
        fail("the pool does not open");
    root = POBJ_ROOT(pool, struct root);
    context = map_ctx_init(MAP, pool);
    if (context == NULL)
        fail("map_ctx_init");
    for (uint64_t number = 1; create && number <= VALUES; number++)
        if (pmemobj_alloc(pool, &D_RW(root)->values[number - 1], sizeof(struct value), TOID_TYPE_NUM(struct value), construct,
                          &number) != 0)
            fail("pmemobj_alloc");
    if (create && map_create(context, &D_RW(root)->map, NULL) != 0)
        fail("map_create");
}

static void recover(void) {
    /* Some maps say on stdout what they recover: that is no operation's output. */
    stdout = stderr;
    if (map_init(context, D_RO(root)->map) != 0)
        fail("map_init");
}

static void print_value(PMEMoid value) {
    if (OID_IS_NULL(value))
        crashproof_print("none");
    else
        crashproof_print("%lu", ((struct value *)pmemobj_direct(value))->number);
}

static uint64_t key_of(const char *word) {
    uint64_t key = crashproof_number(word);
    if (key == 0)
        crashproof_refuse("an empty ctree has no room to tell key 0 from nothing");
    return key;
}

static void insert(char **words) {
    uint64_t key = key_of(words[0]), value = crashproof_number(words[1]);
    if (value < 1 || value > VALUES)
        crashproof_refuse("values are 1 to 200");
    if (map_lookup(context, D_RO(root)->map, key)) {
        crashproof_print("exists");
        return;
    }
    if (map_insert(context, D_RO(root)->map, key, D_RO(root)->values[value - 1]) != 0)
        fail("map_insert");
}

/* btree_map_remove follows a null pointer if the tree is empty. */
static void remove_key(char **words) {
    uint64_t key = key_of(words[0]);
    if (map_lookup(context, D_RO(root)->map, key))
        print_value(map_remove(context, D_RO(root)->map, key));
    else
        crashproof_print("none");
}

static void get(char **words) {
    print_value(map_get(context, D_RO(root)->map, key_of(words[0])));
}

static void probe(void) {
    crashproof_probe_keys(get);
}

static const struct crashproof_operation operations[] = {
    {"insert", 2, insert},
    {"remove", 1, remove_key},
    {"get", 1, get},
    {NULL, 0, NULL},
};
static const struct crashproof_driver driver = {open_pool, recover, probe, operations};
CRASHPROOF_DRIVER(driver)
