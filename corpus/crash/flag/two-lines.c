// Data and flag lie in two lines, with one fence for both: the flag's line may persist before the data's.
#include "../app.h"

struct record {
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t valid;
};

static void put(struct record *r, uint64_t value) {
    r->value = value; //~ crash-order
    PM_CLWB(&r->value);
    r->valid = 1; //~ persisted
    PM_CLWB(&r->valid);
    PM_SFENCE();
}

static void run(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    put(&records[0], 42);
    put(&records[1], 43);
}

static void recover(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    for (int i = 0; i < 2; i++)
        REQUIRE(!records[i].valid || records[i].value == 42u + i, "record %d is valid and holds %lu", i,
                records[i].value);
}

APP(NULL, run, recover, NULL)
