// repair: flush+fence
// The statement belongs to its label, and the label is its if's body.
#include "persist.h"
#include "pool.h"

struct machine {
    volatile uint64_t step;
};

static void advance(struct machine *machine, int go) {
    if (go)
    again:
        machine->step = machine->step + 3; //~ missing-flush
    if (machine->step < 10)
        goto again;
}

int main(int argc, char **argv) {
    struct machine *machine = pool_open(argv[argc - 1], 4096);
    advance(machine, 1);
    printf("%lu\n", (unsigned long)machine->step);
    return 0;
}
