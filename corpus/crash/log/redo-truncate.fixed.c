// setup: yes
// As redo-truncate.c, but the log is done when its content is, persistently, in its place.
#include "../app.h"

struct store {
    _Alignas(LINE) uint64_t logged; // key and value are valid; 0: empty
    uint64_t key, value;
    _Alignas(LINE) uint64_t version; // of the last change
    _Alignas(LINE) uint64_t values[8];
};

static void put(struct store *store, uint64_t key, uint64_t value) {
    store->key = key;
    store->value = value;
    pm_persist(store, LINE);
    store->logged = store->version + 1;
    pm_persist(store, LINE);
    store->values[key] = value;
    pm_flush(&store->values[key], sizeof value);
    PM_SFENCE();
    store->version = store->logged;
    pm_persist(&store->version, sizeof store->version);
    store->logged = 0;
    pm_persist(store, LINE);
}

static void setup(const char *path) {
    (void)pm_map(path, PAGE);
}

static void run(const char *path) {
    struct store *store = (struct store *)pm_map(path, PAGE);
    put(store, 1, 11);
    put(store, 2, 22);
}

// A log that is not newer than the last change is done with. After change v, keys 1 to v have their values.
static void recover(const char *path) {
    struct store *store = (struct store *)pm_map(path, PAGE);
    if (store->logged > store->version) {
        store->values[store->key] = store->value;
        pm_persist(&store->values[store->key], sizeof store->value);
        store->version = store->logged;
        pm_persist(&store->version, sizeof store->version);
    }
    store->logged = 0;
    pm_persist(store, LINE);
    for (uint64_t key = 1; key <= store->version; key++)
        REQUIRE(store->values[key] == key * 11, "after change %lu key %lu has %lu", store->version, key,
                store->values[key]);
}

APP(setup, run, recover, NULL)
