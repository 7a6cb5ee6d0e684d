// setup: yes
// crash: --depth 2
// The redo log holds a difference: if recovery is interrupted between applying it and emptying the log, it is applied twice.
#include "../app.h"

struct counter {
    _Alignas(LINE) uint64_t difference; // 0: the log is empty
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t promised; // what the client was told that the value is
    _Alignas(LINE) uint64_t starts;   // of the server
};

static void apply(struct counter *counter) {
    counter->value += counter->difference; //~ persisted
    pm_persist(&counter->value, sizeof counter->value);
    counter->difference = 0; //~ crash-atomicity
    pm_persist(&counter->difference, sizeof counter->difference);
}

// A server that stopped when it had made the log, and had not come to apply it.
static void setup(const char *path) {
    struct counter *counter = (struct counter *)pm_map(path, PAGE);
    counter->value = 100;
    counter->difference = 5;
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
    if (counter->difference != 0)
        apply(counter);
    REQUIRE(counter->value == counter->promised, "the counter is %lu, %lu was promised", counter->value,
            counter->promised);
}

APP(setup, run, recover, NULL)
