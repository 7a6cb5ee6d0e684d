// The data is durable before the valid flag is stored.
#include "../../include/crashproof.h"
#include "../pm.h"

struct slot {
    uint64_t data;
    char pad[56];
    uint64_t valid;
};

static void fill(struct slot *slot, uint64_t value) {
    CRASHPROOF_EXPECT_ORDER(&slot->data, 8, &slot->valid, 8);
    slot->data = value;
    pm_persist(&slot->data, 8);
    slot->valid = 1;
    pm_persist(&slot->valid, 8);
}

int main(int argc, char **argv) {
    struct slot *slots = pm_map(argv[argc - 1], PAGE);
    fill(&slots[0], 7);
    fill(&slots[1], 8);
    return 0;
}
