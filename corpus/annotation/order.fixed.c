// The valid flag is stored when the data that it vouches for is durable; within one line no fence is needed for that.
#include "../../include/crashproof.h"
#include "../pm.h"

struct slot {
    uint64_t data;
    char pad[56];
    uint64_t valid;
    uint64_t version;
};

int main(int argc, char **argv) {
    struct slot *slot = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 1; i < 4; i++) {
        slot->data = i;
        CRASHPROOF_EXPECT_ORDER(&slot->data, 8, &slot->valid, 8);
        pm_persist(&slot->data, 8);
        CRASHPROOF_EXPECT_ORDER(&slot->valid, 8, &slot->version, 8);
        slot->valid = i;
        slot->version = i;
        pm_persist(&slot->valid, 16);
    }
    return 0;
}
