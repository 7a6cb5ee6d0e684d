// setup: yes
// As resize.c, but the rehashed entries are persistent before the switch.
#include "../app.h"

struct table {
    _Alignas(LINE) uint64_t keys[8];
};

struct map {
    _Alignas(LINE) uint64_t bits; // the table in use has 2^bits places
    struct table tables[4];       // by bits
};

static uint64_t *place(struct map *map, uint64_t bits, uint64_t key) {
    return &map->tables[bits].keys[key & ((1ull << bits) - 1)];
}

static void resize(struct map *map) {
    uint64_t bits = map->bits;
    for (uint64_t i = 0; i < 1ull << bits; i++) {
        uint64_t key = map->tables[bits].keys[i];
        if (key != 0)
            *place(map, bits + 1, key) = key;
    }
    pm_flush(&map->tables[bits + 1], sizeof(struct table));
    PM_SFENCE();
    map->bits = bits + 1;
    pm_persist(&map->bits, sizeof map->bits);
}

static void setup(const char *path) {
    struct map *map = (struct map *)pm_map(path, PAGE);
    map->bits = 1;
    *place(map, 1, 2) = 2;
    *place(map, 1, 5) = 5;
    pm_persist(map, sizeof *map);
}

static void run(const char *path) {
    struct map *map = (struct map *)pm_map(path, PAGE);
    resize(map);
    resize(map);
}

static void recover(const char *path) {
    struct map *map = (struct map *)pm_map(path, PAGE);
    REQUIRE(map->bits < 4, "a table of 2^%lu places", map->bits);
    for (uint64_t i = 0; i < 1ull << map->bits; i++) {
        uint64_t key = map->tables[map->bits].keys[i];
        REQUIRE(key == 0 || place(map, map->bits, key) == &map->tables[map->bits].keys[i], "key %lu is misplaced", key);
    }
    REQUIRE(*place(map, map->bits, 2) == 2, "key 2 is lost");
    REQUIRE(*place(map, map->bits, 5) == 5, "key 5 is lost");
}

APP(setup, run, recover, NULL)
