// repair: flush+fence
// The store is in the operand of return.
#include "persist.h"
#include "pool.h"

struct sequence {
    uint64_t last;
};

static uint64_t next(struct sequence *sequence) {
    uint64_t ret = ++sequence->last;
    pm_persist(&sequence->last, sizeof(sequence->last));
    return ret;
}

int main(int argc, char **argv) {
    struct sequence *sequence = pool_open(argv[argc - 1], 4096);
    uint64_t id = next(sequence);
    id += next(sequence);
    printf("%lu\n", (unsigned long)id);
    return 0;
}
