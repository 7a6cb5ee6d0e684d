// repair: flush
// A member of a union in a struct.
#include "persist.h"
#include "pool.h"

struct cell {
    uint32_t kind;
    union {
        double number;
        struct {
            uint32_t offset, length;
        } text;
    } as;
};

static void set_text(struct cell *cell, uint32_t offset) {
    cell->as.text.offset = offset; //~ missing-flush
    pm_fence();
}

int main(int argc, char **argv) {
    struct cell *cells = pool_open(argv[argc - 1], 4096);
    set_text(&cells[9], 80);
    printf("%u\n", cells[9].as.text.offset);
    return 0;
}
