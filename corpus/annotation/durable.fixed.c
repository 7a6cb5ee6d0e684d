// The program says what has to be durable where, and it is.
#include "../../include/crashproof.h"
#include "../pm.h"

struct record {
    uint64_t value;
    char pad[56];
    uint64_t sum;
};

int main(int argc, char **argv) {
    struct record *record = pm_map(argv[argc - 1], PAGE);
    record->value = 7;
    pm_flush(&record->value, 8);
    PM_SFENCE();
    CRASHPROOF_EXPECT_DURABLE(&record->value, 8);
    record->sum = 7;
    CRASHPROOF_EXPECT_DURABLE(&record->value, 8);
    pm_flush(&record->sum, 8);
    PM_SFENCE();
    CRASHPROOF_EXPECT_DURABLE(record, sizeof *record);
    return 0;
}
