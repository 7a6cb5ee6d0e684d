#include "persist.h"
#include "setter.h"

void second(struct cell *cells) {
    cell_set(&cells[1], 2); //~ missing-flush
}
