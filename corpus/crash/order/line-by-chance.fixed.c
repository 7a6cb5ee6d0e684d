// Each word of the counter is flushed by itself, so it is right wherever the counter lies.
#include "../app.h"

struct counted {
    uint64_t count;
    uint64_t dirty;
};

struct set {
    _Alignas(LINE) uint64_t elements[4];
    _Alignas(LINE) struct counted size;
};

static void insert(struct set *set, struct counted *size, int at, uint64_t element) {
    size->dirty = 1;
    pm_persist(&size->dirty, sizeof size->dirty);
    set->elements[at] = element;
    pm_persist(&set->elements[at], sizeof set->elements[at]);
    size->count++;
    pm_persist(&size->count, sizeof size->count);
    size->dirty = 0;
    pm_persist(&size->dirty, sizeof size->dirty);
}

static void run(const char *path) {
    struct set *set = (struct set *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        insert(set, &set->size, i, 7 * (i + 1));
}

static void recover(const char *path) {
    struct set *set = (struct set *)pm_map(path, PAGE);
    uint64_t elements = 0;
    for (int i = 0; i < 4; i++)
        elements += set->elements[i] != 0;
    if (set->size.dirty) {
        set->size.count = elements;
        pm_persist(&set->size.count, sizeof set->size.count);
        set->size.dirty = 0;
        pm_persist(&set->size.dirty, sizeof set->size.dirty);
    }
    REQUIRE(set->size.count == elements, "%lu elements, and a size of %lu", elements, set->size.count);
}

APP(NULL, run, recover, NULL)
