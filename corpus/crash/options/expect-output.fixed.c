// setup: yes
// crash: --expect-output {folder}/expect-output.txt
// brute-force: no, recovery says what it found and leaves the judgement to others
// As expect-output.c, but both halves are one word.
#include "../app.h"

struct halves {
    _Alignas(LINE) uint64_t both; // the first in the upper half
};

static void setup(const char *path) {
    struct halves *halves = (struct halves *)pm_map(path, PAGE);
    halves->both = 100ull << 32;
    pm_persist(halves, sizeof *halves);
}

static void run(const char *path) {
    struct halves *halves = (struct halves *)pm_map(path, PAGE);
    halves->both = halves->both - (40ull << 32) + 40;
    pm_persist(&halves->both, sizeof halves->both);
}

static void recover(const char *path) {
    struct halves *halves = (struct halves *)pm_map(path, PAGE);
    printf("the sum is %lu\n", (halves->both >> 32) + (halves->both & 0xffffffff));
}

APP(setup, run, recover, NULL)
