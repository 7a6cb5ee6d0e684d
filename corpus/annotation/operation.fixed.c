// Each operation is durable when it ends; what other operations have not persisted yet is not its business.
#include "../../include/crashproof.h"
#include "../pm.h"

static void put(uint64_t *words, uint64_t value) {
    CRASHPROOF_OP_BEGIN("put");
    words[0] = value;
    CRASHPROOF_OP_BEGIN("count");
    words[8] += 1;
    pm_persist(words + 8, 8);
    CRASHPROOF_OP_END("count");
    pm_persist(words, 8);
    CRASHPROOF_OP_END("put");
}

int main(int argc, char **argv) {
    uint64_t *words = pm_map(argv[argc - 1], PAGE);
    words[24] = 1;
    put(words, 1);
    put(words, 2);
    pm_persist(words + 24, 8);
    return 0;
}
