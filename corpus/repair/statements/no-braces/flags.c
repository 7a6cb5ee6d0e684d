// repair: flush, flush
// Bodies without braces need braces.
#include "persist.h"
#include "pool.h"

struct state {
    uint64_t open;
    char pad0[56];
    uint32_t closed;
    char pad1[60];
    uint64_t visits;
};

static void visit(struct state *state, int open) {
    if (open)
        state->open = 1; //~ missing-flush
    else
        state->closed = 1; //~ missing-flush

    state->visits++;
    pm_persist(&state->visits, sizeof state->visits);
}

int main(int argc, char **argv) {
    struct state *state = pool_open(argv[argc - 1], 4096);
    visit(state, 0);
    visit(state, 1);
    printf("%lu %u %lu\n", (unsigned long)state->open, state->closed, (unsigned long)state->visits);
    return 0;
}
