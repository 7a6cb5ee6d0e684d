// setup: yes
// Each transfer makes a journal under the same name and deletes it at its end. The journal is valid before its values are
// persistent. That the file is gone at the end of the run hides nothing.
#include "../app.h"

struct accounts {
    uint64_t from;
    _Alignas(LINE) uint64_t to;
};

struct journal {
    uint64_t from, to;
    _Alignas(LINE) uint64_t valid;
};

static const char *journal_of(const char *path) {
    static char name[4096];
    snprintf(name, sizeof name, "%s.journal", path);
    return name;
}

static void begin(struct journal *journal, const struct accounts *accounts) {
    journal->from = accounts->from; //~ crash-order one-of
    journal->to = accounts->to; //~ crash-order one-of
    PM_SFENCE();
    journal->valid = 1; //~ persisted
    pm_persist(&journal->valid, sizeof journal->valid);
}

static void transfer(struct accounts *accounts, const char *path, uint64_t amount) {
    struct journal *journal = (struct journal *)pm_map(journal_of(path), PAGE);
    begin(journal, accounts);
    accounts->from -= amount;
    accounts->to += amount;
    pm_persist(accounts, sizeof *accounts);
    if (remove(journal_of(path)) != 0)
        pm_die(path);
    munmap(journal, PAGE);
}

static void setup(const char *path) {
    struct accounts *accounts = (struct accounts *)pm_map(path, PAGE);
    accounts->from = 100;
    pm_persist(accounts, sizeof *accounts);
}

static void run(const char *path) {
    struct accounts *accounts = (struct accounts *)pm_map(path, PAGE);
    transfer(accounts, path, 10);
    acknowledge(1);
    transfer(accounts, path, 20);
    acknowledge(2);
}

static void recover(const char *path) {
    struct accounts *accounts = (struct accounts *)pm_map(path, PAGE);
    if (access(journal_of(path), F_OK) == 0) {
        struct journal *journal = (struct journal *)pm_map(journal_of(path), PAGE);
        if (journal->valid) {
            accounts->from = journal->from;
            accounts->to = journal->to;
            pm_persist(accounts, sizeof *accounts);
        }
    }
    REQUIRE(accounts->from + accounts->to == 100, "%lu and %lu are not 100", accounts->from, accounts->to);
    uint64_t least = (uint64_t[]){0, 10, 30}[acknowledged()];
    REQUIRE(accounts->to >= least, "%lu of %lu that were acknowledged", accounts->to, least);
}

APP(setup, run, recover, NULL)
