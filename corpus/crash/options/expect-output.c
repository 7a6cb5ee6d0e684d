// setup: yes
// crash: --expect-output {folder}/expect-output.txt
// brute-force: no, recovery says what it found and leaves the judgement to others
// Recovery only prints the sum of the two halves; what it must be is in a file beside this one.
#include "../app.h"

struct halves {
    _Alignas(LINE) uint64_t first;
    _Alignas(LINE) uint64_t second;
};

static void setup(const char *path) {
    struct halves *halves = (struct halves *)pm_map(path, PAGE);
    halves->first = 100;
    pm_persist(halves, sizeof *halves);
}

static void run(const char *path) {
    struct halves *halves = (struct halves *)pm_map(path, PAGE);
    halves->first -= 40; //~ persisted
    pm_persist(&halves->first, sizeof halves->first);
    halves->second += 40; //~ crash-atomicity
    pm_persist(&halves->second, sizeof halves->second);
}

static void recover(const char *path) {
    struct halves *halves = (struct halves *)pm_map(path, PAGE);
    printf("the sum is %lu\n", halves->first + halves->second);
}

APP(setup, run, recover, NULL)
