// The value is stored in front of the flag; the macro stays in front of the type that it does not mean.
#include "../app.h"

struct record {
    _Alignas(LINE) uint64_t valid;
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t digest;
};

typedef uint64_t word;
#define SET(target, number) (*(word *)&(target) = (word)(number))

static void put(struct record *record, uint64_t value) {
    record->value = value;
    pm_persist(&record->value, sizeof record->value);
    SET(record->valid, 0x100 + value);
    pm_persist(&record->valid, sizeof record->valid);
    typedef uint8_t word;
    record->digest = (word)value;
    pm_persist(&record->digest, sizeof record->digest);
}

static void run(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    for (int i = 0; i < 2; i++)
        put(&records[i], 0x207 + i);
}

static void recover(const char *path) {
    struct record *records = (struct record *)pm_map(path, PAGE);
    for (int i = 0; i < 2; i++)
        REQUIRE(!records[i].valid || records[i].valid == 0x100 + records[i].value, "record %d: %lu says %lu", i,
                records[i].valid, records[i].value);
}

APP(NULL, run, recover, NULL)
