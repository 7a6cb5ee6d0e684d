// repair: fence
// The short path returns between flush and fence.
#include "persist.h"
#include "pool.h"

struct account {
    int64_t balance;
};

static int withdraw(struct account *account, int64_t amount) {
    account->balance -= amount; //~ missing-fence
    pm_flush(&account->balance, sizeof account->balance);
    if (account->balance < 100)
        return 1;
    pm_fence();
    return 0;
}

int main(int argc, char **argv) {
    struct account *account = pool_open(argv[argc - 1], 4096);
    account->balance = 250;
    pm_persist(account, sizeof *account);
    int low = withdraw(account, 200);
    printf("balance %ld low %d\n", (long)account->balance, low);
    return 0;
}
