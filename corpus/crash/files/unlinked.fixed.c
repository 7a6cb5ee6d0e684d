// setup: yes
// The journal, which was there before, is removed when what it says is persistent.
#include "../app.h"

struct account {
    uint64_t balance;
};

static const char *journal_of(const char *path) {
    static char name[4096];
    snprintf(name, sizeof name, "%s.data", path);
    return name;
}

static void apply(struct account *account, uint64_t *journal, const char *path) {
    account->balance = *journal;
    pm_persist(account, sizeof *account);
    if (unlink(journal_of(path)) != 0)
        pm_die(path);
}

static void setup(const char *path) {
    struct account *account = (struct account *)pm_map(path, PAGE);
    account->balance = 1;
    pm_persist(account, sizeof *account);
    uint64_t *journal = (uint64_t *)pm_map(journal_of(path), PAGE);
    *journal = 2;
    pm_persist(journal, sizeof *journal);
}

static void run(const char *path) {
    struct account *account = (struct account *)pm_map(path, PAGE);
    apply(account, (uint64_t *)pm_map(journal_of(path), PAGE), path);
}

static void recover(const char *path) {
    struct account *account = (struct account *)pm_map(path, PAGE);
    if (access(journal_of(path), F_OK) == 0) {
        account->balance = *(uint64_t *)pm_map(journal_of(path), PAGE);
        pm_persist(account, sizeof *account);
    }
    REQUIRE(account->balance == 2, "the balance is %lu, and there is no journal", account->balance);
}

APP(setup, run, recover, NULL)
