// repair: subprogram+fence account_add
// The helper is in another file and has its prototype in a header: so must the persistent one.
#include "account.h"
#include "persist.h"
#include "pool.h"

static int64_t preview(const struct account *account, int64_t amount) {
    struct account copy = *account;
    account_add(&copy, amount);
    return copy.balance;
}

int main(int argc, char **argv) {
    struct account *accounts = pool_open(argv[argc - 1], 4096);
    int64_t would_be = 0;
    for (int i = 0; i < 5; i++)
        would_be += preview(&accounts[0], i * 10);
    account_add(&accounts[0], 25);
    printf("%ld %ld\n", (long)would_be, (long)accounts[0].balance);
    return 0;
}
