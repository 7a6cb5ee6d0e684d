// A hint in the pool that is never flushed, and nobody says that this is meant to be.
#include "../../include/crashproof.h"
#include "../pm.h"

struct pool {
    uint64_t count;
    char pad[56];
    uint64_t hint;
};

int main(int argc, char **argv) {
    auto *pool = static_cast<struct pool *>(pm_map(argv[argc - 1], PAGE));
    CRASHPROOF_OP_BEGIN("add");
    pool->count = 1;
    pm_persist(&pool->count, 8);
    pool->hint = 1; //~ missing-flush
    CRASHPROOF_OP_END("add"); //~ expect-durable
    return 0;
}
