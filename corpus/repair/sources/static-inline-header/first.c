// repair: flush+fence, flush+fence
// A static inline function of a header, used by two files: one edit, two functions in the program.
#include "persist.h"
#include "pool.h"
#include "setter.h"

void first(struct cell *cells) {
    cell_set(&cells[0], 1); //~ missing-flush
}

int main(int argc, char **argv) {
    struct cell *cells = pool_open(argv[argc - 1], 4096);
    first(cells);
    second(cells);
    printf("%lu %lu\n", (unsigned long)cells[0].value, (unsigned long)cells[1].value);
    return 0;
}
