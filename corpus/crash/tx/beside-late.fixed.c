// A transaction counts how often it is used, where a snapshot that comes too late does no harm, and changes two counters, both of
// which it snapshots.
// setup: yes
// link: -lpmemobj
// crash: --from advance
// strategies: representative prefix
// brute-force: no, libpmemobj makes more images than it can test
#include "../app.h"
#include <libpmemobj.h>

#define LAYOUT "beside-late"

struct counters {
    _Alignas(LINE) uint64_t first;
    _Alignas(LINE) uint64_t second; // the same
};

struct stats {
    _Alignas(LINE) uint64_t uses;
};

struct root {
    struct stats stats;
    struct counters counters;
};

static PMEMobjpool *pool;
static struct stats *stats;
static struct counters *counters;

static void attach(PMEMobjpool *with) {
    if (!with)
        pm_die(pmemobj_errormsg());
    pool = with;
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof *root));
    stats = &root->stats;
    counters = &root->counters;
}

static void setup(const char *path) {
    attach(pmemobj_create(path, LAYOUT, PMEMOBJ_MIN_POOL, 0600));
    pmemobj_close(pool);
}

static void advance(void) {
    TX_BEGIN(pool) {
        stats->uses++;
        TX_ADD_DIRECT(&stats->uses);
        TX_ADD_DIRECT(&counters->first);
        TX_ADD_DIRECT(&counters->second);
        counters->first++;
        counters->second++;
    } TX_END
}

static void run(const char *path) {
    attach(pmemobj_open(path, LAYOUT));
    advance();
    pmemobj_close(pool);
}

static void recover(const char *path) {
    attach(pmemobj_open(path, LAYOUT));
    REQUIRE(counters->first == counters->second, "%lu and %lu", counters->first, counters->second);
    pmemobj_close(pool);
}

APP(setup, run, recover, NULL)
