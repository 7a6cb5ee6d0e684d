// The error path leaves the function before the flush.
#include "../pm.h"

struct account {
    int64_t balance;
};

static int withdraw(struct account *account, int64_t amount) {
    account->balance -= amount;
    pm_persist(account, sizeof *account);
    if (account->balance < 100)
        return 1;
    return 0;
}

int main(int argc, char **argv) {
    struct account *account = pm_map(argv[argc - 1], PAGE);
    account->balance = 250;
    pm_persist(account, sizeof *account);
    int low = withdraw(account, 100);
    low += withdraw(account, 100);
    printf("balance %ld low %d\n", (long)account->balance, low);
    return 0;
}
