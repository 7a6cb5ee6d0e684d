// As before-data.c, but the slot is claimed when its content is persistent.
#include "../app.h"

struct mailbox {
    _Alignas(LINE) uint64_t full[4];
    _Alignas(LINE) uint64_t message[4];
};

static void send(struct mailbox *box, int slot, uint64_t message) {
    box->message[slot] = message;
    pm_persist(&box->message[slot], sizeof box->message[slot]);
    box->full[slot] = 1;
    pm_persist(&box->full[slot], sizeof box->full[slot]);
}

static void run(const char *path) {
    struct mailbox *box = (struct mailbox *)pm_map(path, PAGE);
    for (int slot = 0; slot < 3; slot++)
        send(box, slot, 1000 + slot);
}

static void recover(const char *path) {
    struct mailbox *box = (struct mailbox *)pm_map(path, PAGE);
    for (int slot = 0; slot < 4; slot++) {
        if (box->full[slot])
            REQUIRE(box->message[slot] == 1000u + slot, "slot %d is full and holds %lu", slot, box->message[slot]);
    }
}

APP(NULL, run, recover, NULL)
