// setup: yes
// Money is taken from one account and given to another; a crash in between destroys it.
#include "../app.h"

#define ACCOUNTS 4

struct bank {
    _Alignas(LINE) struct {
        _Alignas(LINE) int64_t balance;
    } accounts[ACCOUNTS];
};

static void transfer(struct bank *bank, int from, int to, int64_t amount) {
    bank->accounts[from].balance -= amount; //~ persisted
    pm_persist(&bank->accounts[from], LINE);
    bank->accounts[to].balance += amount; //~ crash-atomicity
    pm_persist(&bank->accounts[to], LINE);
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
    int64_t total = 0;
    for (int i = 0; i < ACCOUNTS; i++) {
        REQUIRE(bank->accounts[i].balance >= 0, "account %d holds %ld", i, bank->accounts[i].balance);
        total += bank->accounts[i].balance;
    }
    REQUIRE(total == 100 * ACCOUNTS, "the accounts hold %ld in all", total);
}

APP(setup, run, recover, NULL)
