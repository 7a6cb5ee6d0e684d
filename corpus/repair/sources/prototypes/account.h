#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdint.h>

struct account {
    int64_t balance;
    uint64_t changes;
    char pad[48];
};

// Also used for the copies that a report is made from.
void account_add(struct account *account, int64_t amount);

#endif
