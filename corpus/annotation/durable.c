// The program says what has to be durable where. The fence comes too late, and check alone would not mind: at the end all is durable.
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
    CRASHPROOF_EXPECT_DURABLE(&record->value, 8); //~ expect-durable
    record->sum = 7;
    CRASHPROOF_EXPECT_DURABLE(record, sizeof *record); //~ expect-durable
    pm_flush(&record->sum, 8);
    PM_SFENCE();
    CRASHPROOF_EXPECT_DURABLE(record, sizeof *record);
    return 0;
}
