// setup: yes
// The undo log's count persists late: data may change in place while the log still looks empty.
#include "../app.h"

struct entry {
    uint64_t account, old;
};

struct bank {
    _Alignas(LINE) uint64_t count;
    _Alignas(LINE) struct entry log[4];
    _Alignas(LINE) uint64_t balance[2];
};

static void transfer(struct bank *bank, uint64_t amount) {
    for (uint64_t i = 0; i < 2; i++)
        bank->log[i] = (struct entry){.account = i, .old = bank->balance[i]};
    pm_persist(bank->log, sizeof bank->log);
    bank->count = 2; //~ crash-order
    bank->balance[0] -= amount; //~ persisted
    PM_BARRIER();
    bank->balance[1] += amount;
    pm_flush(&bank->count, sizeof bank->count);
    pm_persist(bank->balance, sizeof bank->balance);
    bank->count = 0;
    pm_persist(&bank->count, sizeof bank->count);
}

static void setup(const char *path) {
    struct bank *bank = (struct bank *)pm_map(path, PAGE);
    bank->balance[0] = 100;
    pm_persist(bank->balance, sizeof bank->balance);
}

static void run(const char *path) {
    struct bank *bank = (struct bank *)pm_map(path, PAGE);
    transfer(bank, 30);
    transfer(bank, 20);
}

static void recover(const char *path) {
    struct bank *bank = (struct bank *)pm_map(path, PAGE);
    REQUIRE(bank->count <= 4, "the log has %lu entries", bank->count);
    for (uint64_t i = bank->count; i-- > 0;) {
        REQUIRE(bank->log[i].account < 2, "the log names account %lu", bank->log[i].account);
        bank->balance[bank->log[i].account] = bank->log[i].old;
    }
    pm_persist(bank->balance, sizeof bank->balance);
    bank->count = 0;
    pm_persist(&bank->count, sizeof bank->count);
    REQUIRE(bank->balance[0] + bank->balance[1] == 100, "the accounts hold %lu and %lu", bank->balance[0],
            bank->balance[1]);
}

APP(setup, run, recover, NULL)
