// As overlapping.c, but each box is filled, and that is persistent, before it is claimed.
#include "../app.h"

struct box {
    _Alignas(LINE) uint64_t full;
    _Alignas(LINE) uint64_t message;
};

static void run(const char *path) {
    struct box *box = (struct box *)pm_map(path, PAGE);
    box[0].message = 2000;
    pm_persist(&box[0].message, sizeof box[0].message);

    box[1].message = 2001;
    pm_persist(&box[1].message, sizeof box[1].message);
    box[1].full = 1;
    pm_persist(&box[1].full, sizeof box[1].full);

    box[0].full = 1;
    pm_persist(&box[0].full, sizeof box[0].full);
}

static void recover(const char *path) {
    struct box *box = (struct box *)pm_map(path, PAGE);
    int wrong = 0;
    for (int i = 0; i < 2; i++)
        wrong += box[i].full && box[i].message != 2000u + i;
    REQUIRE(!wrong, "%d boxes are full and do not hold their messages", wrong);
}

APP(NULL, run, recover, NULL)
