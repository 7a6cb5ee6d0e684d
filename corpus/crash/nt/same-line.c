// Data and flag in one line, in the right order, but non-temporal: such stores are unordered even within a line.
#include "../app.h"

struct message {
    _Alignas(LINE) uint64_t value;
    uint64_t complete;
};

static void send(struct message *message, uint64_t value) {
    PM_NTSTORE(&message->value, value); //~ crash-order
    PM_NTSTORE(&message->complete, (uint64_t)1); //~ persisted
    PM_SFENCE();
}

static void run(const char *path) {
    struct message *messages = (struct message *)pm_map(path, PAGE);
    send(&messages[0], 100);
    send(&messages[1], 101);
}

static void recover(const char *path) {
    struct message *messages = (struct message *)pm_map(path, PAGE);
    for (uint64_t m = 0; m < 2; m++)
        REQUIRE(!messages[m].complete || messages[m].value == 100 + m, "message %lu is complete and holds %lu", m,
                messages[m].value);
}

APP(NULL, run, recover, NULL)
