// setup: yes
// crash: --depth 2
// Recovery empties the undo log while what it rolled back may not be persistent: a second crash finds neither.
#include "../app.h"

struct account {
    _Alignas(LINE) uint64_t logged;
    uint64_t old_left, old_right;
    _Alignas(LINE) uint64_t left; // left + right is always 100
    uint64_t right;
};

static void move(struct account *account, uint64_t amount) {
    account->old_left = account->left;
    account->old_right = account->right;
    PM_BARRIER();
    account->logged = 1;
    pm_persist(&account->logged, LINE);
    account->left -= amount;
    PM_BARRIER();
    account->right += amount;
    pm_persist(&account->left, LINE);
    account->logged = 0;
    pm_persist(&account->logged, LINE);
}

static void setup(const char *path) {
    struct account *account = (struct account *)pm_map(path, PAGE);
    account->left = 100;
    pm_persist(account, sizeof *account);
}

static void run(const char *path) {
    move((struct account *)pm_map(path, PAGE), 25);
}

static void recover(const char *path) {
    struct account *account = (struct account *)pm_map(path, PAGE);
    if (account->logged) {
        account->left = account->old_left; //~ crash-order one-of
        PM_BARRIER();
        account->right = account->old_right; //~ crash-order one-of
        pm_flush(&account->left, LINE);
        account->logged = 0; //~ persisted
        pm_persist(&account->logged, LINE);
    }
    REQUIRE(account->left + account->right == 100, "%lu and %lu", account->left, account->right);
}

APP(setup, run, recover, NULL)
