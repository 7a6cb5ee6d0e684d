// crash: --reorder-in-line
// As reorder-in-line.c, but the data is persistent before the flag is stored.
#include "../app.h"

struct record {
    _Alignas(LINE) uint64_t value;
    uint64_t valid;
};

static void put(struct record *record, uint64_t value) {
    record->value = value;
    pm_persist(record, sizeof *record);
    PM_BARRIER();
    record->valid = 1;
    pm_persist(record, sizeof *record);
}

static void run(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    put(&records[0], 42);
    put(&records[1], 43);
}

static void recover(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE(!records[i].valid || records[i].value == 42 + i, "record %lu is valid and holds %lu", i,
                records[i].value);
}

APP(NULL, run, recover, NULL)
