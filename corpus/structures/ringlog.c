// A write-ahead log in a ring, before a table of accounts. A transaction moves money between two or three accounts: its record
// (of variable length, with the new balances) is durable before the accounts change, and the accounts are durable before the log's
// head moves on, which is done for several transactions at once.
#include "structure.h"

#define MAGIC 0x676f6c676e6972u
#define ACCOUNTS 64
#define RING 1024  // bytes
#define BATCH 4    // transactions between two checkpoints
#define FIRST_BALANCE 1000

struct account {
    _Alignas(LINE) uint64_t balance;
    uint64_t changes; // how many transactions have touched it
};

struct change {
    uint64_t account, balance, changes;
};

struct record {
    uint64_t sequence; // 0: the rest of the ring is not used, and the next record is at its start
    uint64_t count;
    struct change changes[];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t head; // position of the first record that may have to be done again; never wraps
    uint64_t head_sequence;       // if there are no records, the sequence of the next; in the same line and stored before
    _Alignas(LINE) uint64_t tail; // position after the last record
    _Alignas(LINE) char ring[RING];
    struct account accounts[ACCOUNTS];
};

static struct root *root;
static uint64_t next_sequence, since_checkpoint;

static struct record *record_at(uint64_t position) {
    return (struct record *)(root->ring + position % RING);
}

static uint64_t size_of(uint64_t count) {
    return sizeof(struct record) + count * sizeof(struct change);
}

static void store_durably(uint64_t *at, uint64_t value) {
    *at = value;
    pm_persist(at, sizeof *at);
}

// All accounts are durable up to here: the log may begin here.
static void checkpoint(void) {
    since_checkpoint = 0;
#ifdef BUG_HEAD_EARLY
    for (uint64_t i = 0; i < ACCOUNTS; i++)
        pm_flush(&root->accounts[i], sizeof root->accounts[i]); // no fence before the head moves
#else
    pm_persist(root->accounts, sizeof root->accounts);
#endif
    root->head_sequence = next_sequence;
    PM_BARRIER();
    root->head = root->tail; //~[BUG_HEAD_EARLY] crash-order|crash-durability
    //~^[BUG_HEAD_PAIR] crash-order|crash-atomicity
    pm_persist(&root->head, 2 * sizeof(uint64_t));
}

// A place in the ring for a record of this size, without a gap: a record that says so fills the rest of the ring.
static uint64_t reserve(uint64_t size) {
    uint64_t position = root->tail;
    uint64_t rest = RING - position % RING;
    uint64_t needed = rest < size ? rest + size : size;
    if (position + needed - root->head > RING)
        checkpoint();
    if (rest >= size)
        return position;
    if (rest >= sizeof(uint64_t)) {
        record_at(position)->sequence = 0; //~[BUG_WRAP_FLUSH] crash-order|crash-durability
#ifndef BUG_WRAP_FLUSH
        pm_persist(&record_at(position)->sequence, sizeof(uint64_t));
#endif
    }
    return position + rest;
}

static void append(const struct change *changes, uint64_t count) {
    uint64_t position = reserve(size_of(count));
    struct record *record = record_at(position);
    record->sequence = next_sequence; //~[BUG_TAIL_ORDER] crash-order|crash-durability
    record->count = count; //~[BUG_TAIL_ORDER] crash-order|crash-durability
    memcpy(record->changes, changes, count * sizeof *changes); //~[BUG_TAIL_ORDER] crash-order|crash-durability
#ifndef BUG_TAIL_ORDER
    pm_persist(record, size_of(count));
#endif
    store_durably(&root->tail, position + size_of(count));
#ifdef BUG_TAIL_ORDER
    pm_persist(record, size_of(count));
#endif
    next_sequence++;
}

static void apply(const struct change *change) {
    REQUIRE(change->account < ACCOUNTS, "a record for account %lu", change->account);
    struct account *account = &root->accounts[change->account];
    account->balance = change->balance; //~[BUG_HEAD_EARLY] crash-order|crash-durability
    //~^[BUG_APPLY_FIRST] crash-order|crash-atomicity
    account->changes = change->changes; //~[BUG_HEAD_EARLY] crash-order|crash-durability
    //~^[BUG_APPLY_FIRST] crash-order|crash-atomicity
    pm_flush(account, sizeof *account);
}

struct op {
    uint64_t count;
    struct change changes[3];
};

static void transact(const struct op *op) {
#ifdef BUG_APPLY_FIRST
    for (uint64_t i = 0; i < op->count; i++)
        apply(&op->changes[i]);
    append(op->changes, op->count);
#else
    append(op->changes, op->count);
    for (uint64_t i = 0; i < op->count; i++)
        apply(&op->changes[i]);
#endif
    if (++since_checkpoint == BATCH)
        checkpoint();
}

struct model {
    uint64_t random;
    struct {
        uint64_t balance, changes;
    } accounts[ACCOUNTS];
};

static struct op model_next(struct model *model) {
    struct op op = {.count = 2 + next_random(&model->random) % 2};
    uint64_t start = next_random(&model->random), step = 1 + next_random(&model->random) % 20;
    uint64_t moved = 0;
    for (uint64_t i = 0; i < op.count; i++) {
        uint64_t n = (start + i * step) % ACCOUNTS;
        uint64_t amount = i + 1 < op.count ? model->accounts[n].balance / 3 : 0;
        moved += amount;
        model->accounts[n].balance += i + 1 < op.count ? -amount : moved;
        model->accounts[n].changes++;
        op.changes[i] = (struct change){n, model->accounts[n].balance, model->accounts[n].changes};
    }
    return op;
}

static void first_accounts(struct model *model, uint64_t seed) {
    model->random = seed;
    for (uint64_t i = 0; i < ACCOUNTS; i++) {
        model->accounts[i].balance = FIRST_BALANCE;
        model->accounts[i].changes = 0;
    }
}

// Does again what the log has.
static void recover(void) {
    next_sequence = root->head_sequence;
#ifndef BUG_HEAD_PAIR
    // The crash may have come between sequence and head: a record knows its own.
    bool starts = true;
#else
    bool starts = false;
#endif
    REQUIRE(root->tail - root->head <= RING, "a log from %lu to %lu", root->head, root->tail);
    for (uint64_t position = root->head; position < root->tail;) {
        uint64_t rest = RING - position % RING;
        if (rest < sizeof(uint64_t) || record_at(position)->sequence == 0) {
            position += rest;
            continue;
        }
        struct record *record = record_at(position);
        if (starts)
            next_sequence = record->sequence;
        starts = false;
        REQUIRE(record->sequence == next_sequence && record->count <= 3, "record %lu is broken", next_sequence);
        for (uint64_t i = 0; i < record->count; i++)
            apply(&record->changes[i]);
        position += size_of(record->count);
        next_sequence++;
    }
    PM_SFENCE();
    checkpoint();
}

static bool open_file(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover();
        return true;
    }
    if (!create)
        return false;
    root->head = root->tail = 0;
    root->head_sequence = next_sequence = 1;
    for (uint64_t i = 0; i < ACCOUNTS; i++) {
        root->accounts[i].balance = FIRST_BALANCE;
        root->accounts[i].changes = 0;
        pm_persist(&root->accounts[i], sizeof root->accounts[i]);
    }
    pm_persist(root, offsetof(struct root, ring));
    store_durably(&root->magic, MAGIC);
    return true;
}

static bool matches(const struct model *model, uint64_t i) {
    return root->accounts[i].balance == model->accounts[i].balance && root->accounts[i].changes == model->accounts[i].changes;
}

static void load(const char *path, uint64_t operations, uint64_t seed) {
    open_file(path, true);
    struct model model = {.random = seed};
    for (uint64_t i = 0; i < ACCOUNTS; i++) {
        model.accounts[i].balance = root->accounts[i].balance;
        model.accounts[i].changes = root->accounts[i].changes;
    }
    for (uint64_t i = 1; i <= operations; i++) {
        struct op op = model_next(&model);
        transact(&op);
        acknowledge(i);
    }
}

static void verify(const char *path, const char *seed) {
    uint64_t done = acknowledged();
    if (!open_file(path, false)) {
        REQUIRE(done == 0, "there is nothing, and %lu operations were acknowledged", done);
        return;
    }
    uint64_t total = 0;
    for (uint64_t i = 0; i < ACCOUNTS; i++)
        total += root->accounts[i].balance;
    REQUIRE(total == ACCOUNTS * FIRST_BALANCE, "there is %lu in all accounts", total);
    if (!seed || !getenv("CRASHPROOF_OUTPUT"))
        return;
    struct model before;
    first_accounts(&before, strtoull(seed, NULL, 0));
    for (uint64_t i = 0; i < done; i++)
        model_next(&before);
    struct model after = before;
    uint64_t last = model_next(&after).changes[0].account;
    struct model *expected = matches(&after, last) ? &after : &before;
    for (uint64_t i = 0; i < ACCOUNTS; i++)
        REQUIRE(matches(expected, i), "account %lu has %lu instead of %lu", i, root->accounts[i].balance,
                expected->accounts[i].balance);
}

#include "load_verify.h"
