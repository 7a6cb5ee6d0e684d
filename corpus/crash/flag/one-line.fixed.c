// As one-line.c, but the data is stored first. Within a line stores persist in program order, so one flush is enough.
#include "../app.h"

struct record {
    uint64_t value;
    uint64_t valid;
};

static void put(struct record *r, uint64_t value) {
    r->value = value;
    PM_BARRIER();
    r->valid = 1;
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
