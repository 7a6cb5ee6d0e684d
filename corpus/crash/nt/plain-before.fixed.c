// As plain-before.c, but the plain store is flushed and fenced first.
#include "../app.h"

struct cell {
    _Alignas(LINE) uint64_t value;
    uint64_t valid;
};

static void set(struct cell *cell, uint64_t value) {
    cell->value = value;
    pm_persist(&cell->value, sizeof cell->value);
    PM_NTSTORE(&cell->valid, (uint64_t)1);
    PM_SFENCE();
    pm_persist(cell, sizeof *cell);
}

static void run(const char *path) {
    struct cell *cells = (struct cell *)pm_map(path, PAGE);
    set(&cells[0], 7);
    set(&cells[1], 8);
}

static void recover(const char *path) {
    struct cell *cells = (struct cell *)pm_map(path, PAGE);
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE(!cells[i].valid || cells[i].value == 7 + i, "cell %lu is valid and holds %lu", i, cells[i].value);
}

APP(NULL, run, recover, NULL)
