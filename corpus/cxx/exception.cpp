// An exception leaves the function between store and flush.
// build: gcc clang
#include "../pm.h"
#include <stdexcept>

struct Account {
    volatile long balance;
};

static void withdraw(Account *account, long amount) {
    account->balance = account->balance - amount; //~ missing-flush x1
    if (account->balance < 0)
        throw std::runtime_error("overdrawn");
    pm_persist((void *)account, sizeof *account);
}

int main(int argc, char **argv) {
    Account *account = static_cast<Account *>(pm_map(argv[argc - 1], PAGE));
    account->balance = 30;
    pm_persist((void *)account, sizeof *account);
    try {
        for (;;)
            withdraw(account, 20);
    } catch (const std::runtime_error &error) {
        printf("%s\n", error.what());
    }
    return 0;
}
