// The value is flushed and acknowledged, but no fence has waited for the flush.
#include "../app.h"

struct counter {
    _Alignas(LINE) uint64_t value;
};

static void count(struct counter *counter) {
    counter->value++; //~ crash-durability
    PM_CLWB(&counter->value);
    acknowledge((int)counter->value);
}

static void run(const char *path) {
    struct counter *counter = (struct counter *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        count(counter);
}

static void recover(const char *path) {
    struct counter *counter = (struct counter *)pm_map(path, PAGE);
    REQUIRE(counter->value >= (uint64_t)acknowledged(), "%d was acknowledged, the counter is %lu", acknowledged(),
            counter->value);
    REQUIRE(counter->value <= 3, "the counter is %lu", counter->value);
}

APP(NULL, run, recover, NULL)
