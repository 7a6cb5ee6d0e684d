// The valid flag is stored before the data that it vouches for is durable; in the end all is.
#include "../../include/crashproof.h"
#include "../pm.h"

struct slot {
    uint64_t data;
    char pad[56];
    uint64_t valid;
};

int main(int argc, char **argv) {
    struct slot *slot = pm_map(argv[argc - 1], PAGE);
    CRASHPROOF_EXPECT_ORDER(&slot->data, 8, &slot->valid, 8);
    slot->data = 7;
    pm_flush(&slot->data, 8);
    slot->valid = 1; //~ expect-order
    pm_flush(&slot->valid, 8);
    PM_SFENCE();
    return 0;
}
