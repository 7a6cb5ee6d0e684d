// A function that nothing shows to be a helper, because it counts in PM what it writes, and that crashproof.toml declares one.
// build: gcc clang
// flags: -O0 -O2
// config: declared.toml
#include "../pm.h"

struct counters {
    _Alignas(LINE) volatile uint64_t total;
    _Alignas(LINE) volatile uint64_t words[8];
};

__attribute__((noinline)) static void counted_add(struct counters *counters, int at, uint64_t by) {
    counters->words[at] += by;
    counters->total += by;
    PM_BARRIER();
}

int main(int argc, char **argv) {
    struct counters *counters = pm_map(argv[argc - 1], PAGE);
    counted_add(counters, 1, 5);
    pm_persist(counters, sizeof *counters);
    counted_add(counters, 2, 6);
    pm_persist(counters, sizeof *counters);
    printf("%lu\n", (unsigned long)counters->total);
    return 0;
}
