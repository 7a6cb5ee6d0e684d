// Helpers that call helpers are all skipped; a function that adds a store of its own is not.
// build: gcc clang
// flags: -O0 -O2
#include "../pm.h"

struct cell {
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t changes;
};

__attribute__((noinline)) static void store(uint64_t *to, uint64_t value) {
    *(volatile uint64_t *)to = value;
    PM_BARRIER();
}

__attribute__((noinline)) static void set_value(struct cell *cell, uint64_t value) {
    store(&cell->value, value);
    PM_BARRIER();
}

__attribute__((noinline)) static void change(struct cell *cell) {
    set_value(cell, 3);
    pm_persist(cell, sizeof cell->value);
    store(&cell->changes, cell->changes + 1); //~ missing-flush x1
    PM_BARRIER();
}

int main(int argc, char **argv) {
    struct cell *cells = pm_map(argv[argc - 1], PAGE);
    change(&cells[0]);
    set_value(&cells[1], 4); //~ missing-flush x1
    printf("%lu\n", (unsigned long)(cells[0].value + cells[1].value));
    return 0;
}
