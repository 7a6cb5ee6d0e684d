// A transaction changes two counters in a libpmemobj pool, and snapshots the second when it has changed it already.
// setup: yes
// link: -lpmemobj
// crash: --from advance
// strategies: representative prefix
// help: take the snapshot before the store
// brute-force: no, libpmemobj makes more images than it can test
#include "../app.h"
#include <libpmemobj.h>

#define LAYOUT "late"

struct counters {
    _Alignas(LINE) uint64_t first;
    _Alignas(LINE) uint64_t second; // the same
};

static PMEMobjpool *pool;
static struct counters *counters;

static void attach(PMEMobjpool *with) {
    if (!with)
        pm_die(pmemobj_errormsg());
    pool = with;
    counters = pmemobj_direct(pmemobj_root(pool, sizeof *counters));
}

static void setup(const char *path) {
    attach(pmemobj_create(path, LAYOUT, PMEMOBJ_MIN_POOL, 0600));
    pmemobj_close(pool);
}

static void advance(void) {
    TX_BEGIN(pool) {
        TX_ADD_DIRECT(&counters->first);
        counters->first++;
        counters->second++; //~ crash-atomicity //~ persisted
        TX_ADD_DIRECT(&counters->second);
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
