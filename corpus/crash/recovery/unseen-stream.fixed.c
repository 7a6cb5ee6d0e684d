// setup: yes
// The flag is set when the data is persistent.
// Recovery reads the file by the mode `m` of fopen: what it looks at cannot be watched.
#include "../app.h"

struct record {
    uint64_t valid;
    _Alignas(LINE) uint64_t data;
};

static void write_record(struct record *record) {
    record->data = 7;
    pm_persist(&record->data, sizeof record->data);
    record->valid = 1;
    pm_persist(&record->valid, sizeof record->valid);
}

static void setup(const char *path) {
    pm_map(path, PAGE);
}

static void run(const char *path) {
    write_record((struct record *)pm_map(path, PAGE));
}

static void recover(const char *path) {
    struct record record;
    FILE *file = fopen(path, "rm");
    REQUIRE(file && fread(&record, sizeof record, 1, file) == 1, "cannot read it");
    REQUIRE(!record.valid || record.data == 7, "a valid record holds %lu", record.data);
}

APP(setup, run, recover, NULL)
