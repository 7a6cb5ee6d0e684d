// setup: yes
// As swap.c, but the swap is written down first, and recovery finishes it.
#include "../app.h"

struct pair {
    _Alignas(LINE) uint64_t first;
    _Alignas(LINE) uint64_t second;
    _Alignas(LINE) uint64_t new_first;
    uint64_t new_second;
    uint64_t swapping;
};

static void swap(struct pair *pair) {
    uint64_t first = pair->first, second = pair->second;
    pair->new_first = second;
    pair->new_second = first;
    pm_persist(&pair->new_first, LINE);
    pair->swapping = 1;
    pm_persist(&pair->swapping, sizeof pair->swapping);
    pair->first = second;
    pm_persist(&pair->first, sizeof pair->first);
    pair->second = first;
    pm_persist(&pair->second, sizeof pair->second);
    pair->swapping = 0;
    pm_persist(&pair->swapping, sizeof pair->swapping);
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
    if (pair->swapping) {
        pair->first = pair->new_first;
        pair->second = pair->new_second;
        pm_persist(pair, 2 * LINE);
        pair->swapping = 0;
        pm_persist(&pair->swapping, sizeof pair->swapping);
    }
    REQUIRE(pair->first + pair->second == 3 && pair->first != pair->second, "the pair is %lu and %lu", pair->first,
            pair->second);
}

APP(setup, run, recover, NULL)
