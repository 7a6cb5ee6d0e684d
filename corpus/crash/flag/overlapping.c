// Two bugs, one within the other: while the first box is claimed and not filled, which fails by itself, a message goes into
// the second box, whose content is not flushed before its flag.
#include "../app.h"

struct box {
    _Alignas(LINE) uint64_t full;
    _Alignas(LINE) uint64_t message;
};

static void run(const char *path) {
    struct box *box = (struct box *)pm_map(path, PAGE);
    box[0].full = 1; //~ persisted
    pm_persist(&box[0].full, sizeof box[0].full);

    box[1].message = 2001; //~ crash-order
    box[1].full = 1;       //~ persisted
    pm_persist(&box[1], sizeof box[1]);

    box[0].message = 2000; //~ crash-order
    pm_persist(&box[0].message, sizeof box[0].message);
}

static void recover(const char *path) {
    struct box *box = (struct box *)pm_map(path, PAGE);
    int wrong = 0;
    for (int i = 0; i < 2; i++)
        wrong += box[i].full && box[i].message != 2000u + i;
    REQUIRE(!wrong, "%d boxes are full and do not hold their messages", wrong);
}

APP(NULL, run, recover, NULL)
