// setup: yes
// crash: --depth 2
// As not-idempotent.c, but the log holds the new value, which may be applied any number of times.
#include "../app.h"

struct counter {
    _Alignas(LINE) uint64_t new_value; // 0: the log is empty
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t promised; // what the client was told that the value is
    _Alignas(LINE) uint64_t starts;   // of the server
};

static void apply(struct counter *counter) {
    counter->value = counter->new_value;
    pm_persist(&counter->value, sizeof counter->value);
    counter->new_value = 0;
    pm_persist(&counter->new_value, sizeof counter->new_value);
}

// A server that stopped when it had made the log, and had not come to apply it.
static void setup(const char *path) {
    struct counter *counter = (struct counter *)pm_map(path, PAGE);
    counter->value = 100;
    counter->new_value = 105;
    counter->promised = 105;
    pm_persist(counter, sizeof *counter);
}

static void run(const char *path) {
    struct counter *counter = (struct counter *)pm_map(path, PAGE);
    counter->starts++;
    pm_persist(&counter->starts, sizeof counter->starts);
}

static void recover(const char *path) {
    struct counter *counter = (struct counter *)pm_map(path, PAGE);
    if (counter->new_value != 0)
        apply(counter);
    REQUIRE(counter->value == counter->promised, "the counter is %lu, %lu was promised", counter->value,
            counter->promised);
}

APP(setup, run, recover, NULL)
