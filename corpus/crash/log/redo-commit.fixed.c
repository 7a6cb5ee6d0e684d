// setup: yes
// As redo-commit.c, but the entries are persistent before the commit mark is set.
#include "../app.h"

struct entry {
    uint64_t account, value;
};

struct bank {
    _Alignas(LINE) uint64_t committed;
    _Alignas(LINE) struct entry log[2];
    _Alignas(LINE) uint64_t balance[2];
};

static void apply(struct bank *bank) {
    for (int i = 0; i < 2; i++)
        bank->balance[bank->log[i].account] = bank->log[i].value;
    pm_persist(bank->balance, sizeof bank->balance);
    bank->committed = 0;
    pm_persist(&bank->committed, sizeof bank->committed);
}

static void transfer(struct bank *bank, uint64_t amount) {
    uint64_t values[] = {bank->balance[0] - amount, bank->balance[1] + amount};
    for (uint64_t i = 0; i < 2; i++)
        bank->log[i] = (struct entry){.account = i, .value = values[i]};
    pm_flush(bank->log, sizeof bank->log);
    PM_SFENCE();
    bank->committed = 1;
    pm_persist(&bank->committed, sizeof bank->committed);
    apply(bank);
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
    for (int i = 0; i < 2; i++)
        REQUIRE(!bank->committed || bank->log[i].account < 2, "the log names account %lu", bank->log[i].account);
    if (bank->committed)
        apply(bank);
    REQUIRE(bank->balance[0] + bank->balance[1] == 100, "the accounts hold %lu and %lu", bank->balance[0],
            bank->balance[1]);
}

APP(setup, run, recover, NULL)
