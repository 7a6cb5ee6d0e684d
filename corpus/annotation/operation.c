// An operation ends before what it stored is durable: its caller believes it done. Only the next one's fence makes it so.
#include "../../include/crashproof.h"
#include "../pm.h"

static void put(uint64_t *words, uint64_t value) {
    CRASHPROOF_OP_BEGIN("put");
    words[0] = value;
    pm_flush(words, 8);
    CRASHPROOF_OP_END("put"); //~ expect-durable
}

int main(int argc, char **argv) {
    uint64_t *words = pm_map(argv[argc - 1], PAGE);
    put(words, 1);
    PM_SFENCE();
    put(words + 8, 2);
    PM_SFENCE();
    return 0;
}
