#ifndef JOURNAL_H
#define JOURNAL_H

#include <stdint.h>

struct journal {
    uint64_t sequence;
    char pad[56];
    uint64_t state;
};

void journal_close(struct journal *journal);

#endif
