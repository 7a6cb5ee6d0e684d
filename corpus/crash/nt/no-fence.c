// Non-temporal stores need no flush, but they do need a fence before the flag.
#include "../app.h"

struct message {
    _Alignas(LINE) uint64_t words[2];
    _Alignas(LINE) uint64_t complete;
};

static void send(struct message *message, uint64_t value) {
    for (int i = 0; i < 2; i++)
        PM_NTSTORE(&message->words[i], value + i); //~ crash-order
    message->complete = 1; //~ persisted
    pm_persist(&message->complete, sizeof message->complete);
}

static void run(const char *path) {
    struct message *messages = (struct message *)pm_map(path, PAGE);
    send(&messages[0], 100);
    send(&messages[1], 200);
}

static void recover(const char *path) {
    struct message *messages = (struct message *)pm_map(path, PAGE);
    for (uint64_t m = 0; m < 2; m++) {
        for (int i = 0; messages[m].complete && i < 2; i++)
            REQUIRE(messages[m].words[i] == (m + 1) * 100 + i, "word %d of message %lu is %lu", i, m,
                    messages[m].words[i]);
    }
}

APP(NULL, run, recover, NULL)
