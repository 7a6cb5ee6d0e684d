// setup: yes
// Index and data are two files. The index may persist before the data that it promises.
#include "../app.h"

struct database {
    uint64_t *index; // number of entries
    struct entry {
        _Alignas(LINE) uint64_t value;
    } *data;
};

static struct database open_database(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.data", path);
    return (struct database){.index = (uint64_t *)pm_map(path, PAGE), .data = (struct entry *)pm_map(name, PAGE)};
}

static void put(struct database db, uint64_t value) {
    struct entry *entry = &db.data[*db.index];
    entry->value = value; //~ crash-order
    pm_flush(entry, sizeof *entry);
    (*db.index)++; //~ persisted
    pm_persist(db.index, sizeof *db.index);
}

static void setup(const char *path) {
    put(open_database(path), 10);
}

static void run(const char *path) {
    struct database db = open_database(path);
    put(db, 11);
    put(db, 12);
}

static void recover(const char *path) {
    struct database db = open_database(path);
    REQUIRE(*db.index <= 3, "%lu entries", *db.index);
    for (uint64_t i = 0; i < *db.index; i++)
        REQUIRE(db.data[i].value == 10 + i, "entry %lu is %lu", i, db.data[i].value);
}

APP(setup, run, recover, NULL)
