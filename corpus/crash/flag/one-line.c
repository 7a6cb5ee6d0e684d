// The flag lies in the data's line and is stored first: the line may be written back between the two stores.
#include "../app.h"

struct record {
    uint64_t value;
    uint64_t valid;
};

static void put(struct record *r, uint64_t value) {
    r->valid = 1; //~ persisted
    PM_BARRIER();
    r->value = value; //~ crash-order
    pm_persist(r, sizeof *r);
}

static void run(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    put(&records[0], 42);
    put(&records[LINE / sizeof *records], 43);
}

static void recover(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    for (int i = 0; i < 2; i++) {
        struct record *r = &records[i * LINE / sizeof *r];
        REQUIRE(!r->valid || r->value == 42u + i, "record %d is valid and holds %lu", i, r->value);
    }
}

APP(NULL, run, recover, NULL)
