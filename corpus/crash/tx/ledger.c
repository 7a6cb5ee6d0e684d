// A ledger in a libpmemobj pool: five kinds of transactions, of which one forgets to snapshot what it changes.
// setup: yes
// link: -lpmemobj
// strategies: prefix
// help: TX_ADD
// brute-force: no, libpmemobj makes more images than it can test
#include "../app.h"
#include <libpmemobj.h>

#define LAYOUT "ledger"
#define ACCOUNTS 4

POBJ_LAYOUT_BEGIN(ledger);
POBJ_LAYOUT_ROOT(ledger, struct ledger);
POBJ_LAYOUT_TOID(ledger, struct entry);
POBJ_LAYOUT_END(ledger);

struct entry {
    TOID(struct entry) next;
    uint64_t amount;
};

struct account {
    _Alignas(LINE) uint64_t balance;
};

struct ledger {
    _Alignas(LINE) uint64_t total; // of all accounts
    struct account accounts[ACCOUNTS];
    _Alignas(LINE) uint64_t count; // of entries, and what they add up to
    uint64_t sum;
    _Alignas(LINE) TOID(struct entry) first;
    _Alignas(LINE) char name[2][32]; // the same, twice
};

static PMEMobjpool *pool;
static TOID(struct ledger) root;
static struct ledger *ledger;

static void attach(PMEMobjpool *with) {
    if (!with)
        pm_die(pmemobj_errormsg());
    pool = with;
    root = POBJ_ROOT(pool, struct ledger);
    ledger = D_RW(root);
}

static void setup(const char *path) {
    attach(pmemobj_create(path, LAYOUT, PMEMOBJ_MIN_POOL, 0600));
    pmemobj_close(pool);
}

static void deposit(int account, uint64_t amount) {
    TX_BEGIN(pool) {
        TX_ADD_FIELD(root, total);
        TX_ADD_DIRECT(&ledger->accounts[account].balance);
        ledger->total += amount;
        ledger->accounts[account].balance += amount;
    } TX_END
}

static void transfer(int from, int to, uint64_t amount) {
    TX_BEGIN(pool) {
        TX_ADD_DIRECT(&ledger->accounts[from].balance);
        ledger->accounts[from].balance -= amount;
        ledger->accounts[to].balance += amount; //~ crash-atomicity //~ persisted
    } TX_END
}

static void add(uint64_t amount) {
    TX_BEGIN(pool) {
        TOID(struct entry) entry = TX_ZNEW(struct entry);
        D_RW(entry)->amount = amount;
        D_RW(entry)->next = ledger->first;
        TX_ADD(root);
        ledger->first = entry;
        ledger->count++;
        ledger->sum += amount;
    } TX_END
}

static void drop(void) {
    TX_BEGIN(pool) {
        TX_ADD(root);
        TOID(struct entry) entry = ledger->first;
        ledger->first = D_RO(entry)->next;
        ledger->count--;
        ledger->sum -= D_RO(entry)->amount;
        TX_FREE(entry);
    } TX_END
}

static void rename_to(const char *name) {
    TX_BEGIN(pool) {
        for (int i = 0; i < 2; i++)
            TX_MEMCPY(ledger->name[i], name, strlen(name) + 1);
    } TX_END
}

static void run(const char *path) {
    attach(pmemobj_open(path, LAYOUT));
    deposit(0, 100);
    rename_to("savings");
    add(7);
    transfer(0, 3, 30);
    add(9);
    drop();
    pmemobj_close(pool);
}

static void recover(const char *path) {
    attach(pmemobj_open(path, LAYOUT));
    uint64_t total = 0, count = 0, sum = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        total += ledger->accounts[i].balance;
    REQUIRE(total == ledger->total, "the accounts hold %lu of %lu", total, ledger->total);
    TOID(struct entry) entry;
    for (entry = ledger->first; !TOID_IS_NULL(entry) && count <= ledger->count; entry = D_RO(entry)->next) {
        count++;
        sum += D_RO(entry)->amount;
    }
    REQUIRE(count == ledger->count && sum == ledger->sum, "%lu entries of %lu", count, sum);
    REQUIRE(strcmp(ledger->name[0], ledger->name[1]) == 0, "two names");
    pmemobj_close(pool);
}

APP(setup, run, recover, NULL)
