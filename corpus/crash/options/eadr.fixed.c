// crash: --model eadr
// As eadr.c, but a fence has waited for the non-temporal store. Nothing has to be flushed.
#include "../app.h"

struct message {
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t length;
    uint64_t complete;
};

static void send(struct message *message, uint64_t value) {
    message->length = sizeof value;
    PM_NTSTORE(&message->value, value);
    PM_SFENCE();
    message->complete = 1;
    PM_SFENCE();
}

static void run(const char *path) {
    struct message *messages = (struct message *)pm_map(path, PAGE);
    send(&messages[0], 100);
    send(&messages[1], 200);
}

static void recover(const char *path) {
    struct message *messages = (struct message *)pm_map(path, PAGE);
    for (uint64_t m = 0; m < 2; m++) {
        if (!messages[m].complete)
            continue;
        REQUIRE(messages[m].length == sizeof(uint64_t), "message %lu has %lu bytes", m, messages[m].length);
        REQUIRE(messages[m].value == (m + 1) * 100, "message %lu is %lu", m, messages[m].value);
    }
}

APP(NULL, run, recover, NULL)
