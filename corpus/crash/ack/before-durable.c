// Each value is acknowledged before it is persistent.
#include "../app.h"

struct journal {
    _Alignas(LINE) uint64_t values[LINE / 8];
};

static void put(struct journal *journal, int number) {
    journal->values[number] = number; //~ crash-durability
    acknowledge(number);
    pm_persist(&journal->values[number], sizeof journal->values[number]);
}

static void run(const char *path) {
    struct journal *journal = (struct journal *)pm_map(path, PAGE);
    for (int number = 1; number <= 3; number++)
        put(journal, number);
}

static void recover(const char *path) {
    struct journal *journal = (struct journal *)pm_map(path, PAGE);
    for (int number = 1; number <= acknowledged(); number++)
        REQUIRE(journal->values[number] == (uint64_t)number, "value %d was acknowledged and is lost", number);
}

APP(NULL, run, recover, NULL)
