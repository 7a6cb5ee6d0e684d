#include "account.h"

void account_add(struct account *account, int64_t amount) {
    account->balance += amount; //~ missing-flush
    account->changes++; //~? missing-flush
}
