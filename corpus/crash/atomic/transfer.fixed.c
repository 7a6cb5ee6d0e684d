// setup: yes
// As transfer.c, but both new balances are in a record that one store makes valid, and recovery applies it.
#include "../app.h"

#define ACCOUNTS 4

struct bank {
    _Alignas(LINE) struct {
        _Alignas(LINE) int64_t balance;
    } accounts[ACCOUNTS];
    _Alignas(LINE) struct {
        int64_t valid, from, from_balance, to, to_balance;
    } intent;
};

static void apply(struct bank *bank) {
    bank->accounts[bank->intent.from].balance = bank->intent.from_balance;
    bank->accounts[bank->intent.to].balance = bank->intent.to_balance;
    pm_persist(bank->accounts, sizeof bank->accounts);
    bank->intent.valid = 0;
    pm_persist(&bank->intent, LINE);
}

static void transfer(struct bank *bank, int from, int to, int64_t amount) {
    bank->intent.from = from;
    bank->intent.from_balance = bank->accounts[from].balance - amount;
    bank->intent.to = to;
    bank->intent.to_balance = bank->accounts[to].balance + amount;
    PM_BARRIER();
    bank->intent.valid = 1;
    pm_persist(&bank->intent, LINE);
    apply(bank);
}

static void setup(const char *path) {
    struct bank *bank = (struct bank *)pm_map(path, PAGE);
    for (int i = 0; i < ACCOUNTS; i++)
        bank->accounts[i].balance = 100;
    pm_persist(bank, sizeof *bank);
}

static void run(const char *path) {
    struct bank *bank = (struct bank *)pm_map(path, PAGE);
    transfer(bank, 0, 1, 30);
    transfer(bank, 1, 2, 50);
}

static void recover(const char *path) {
    struct bank *bank = (struct bank *)pm_map(path, PAGE);
    if (bank->intent.valid)
        apply(bank);
    int64_t total = 0;
    for (int i = 0; i < ACCOUNTS; i++) {
        REQUIRE(bank->accounts[i].balance >= 0, "account %d holds %ld", i, bank->accounts[i].balance);
        total += bank->accounts[i].balance;
    }
    REQUIRE(total == 100 * ACCOUNTS, "the accounts hold %ld in all", total);
}

APP(setup, run, recover, NULL)
