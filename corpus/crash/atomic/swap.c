// setup: yes
// Two values are swapped by two stores: between them one value is there twice and the other is gone.
#include "../app.h"

struct pair {
    _Alignas(LINE) uint64_t first;
    _Alignas(LINE) uint64_t second;
};

static void swap(struct pair *pair) {
    uint64_t first = pair->first, second = pair->second;
    pair->first = second; //~ persisted
    pm_persist(&pair->first, sizeof pair->first);
    pair->second = first; //~ crash-atomicity
    pm_persist(&pair->second, sizeof pair->second);
}

static void setup(const char *path) {
    struct pair *pair = (struct pair *)pm_map(path, PAGE);
    pair->first = 1;
    pair->second = 2;
    pm_persist(pair, sizeof *pair);
}

static void run(const char *path) {
    swap((struct pair *)pm_map(path, PAGE));
}

static void recover(const char *path) {
    struct pair *pair = (struct pair *)pm_map(path, PAGE);
    REQUIRE(pair->first + pair->second == 3 && pair->first != pair->second, "the pair is %lu and %lu", pair->first,
            pair->second);
}

APP(setup, run, recover, NULL)
