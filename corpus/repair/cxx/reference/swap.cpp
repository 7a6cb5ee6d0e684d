// repair: flush, flush+fence
// build: $CXX -g -O2 -o app swap.cpp
// References, in a namespace.
#include "persist.h"
#include "pool.h"

namespace store {

static void exchange(uint64_t &a, uint64_t &b) {
    uint64_t old = a;
    a = b;   //~ missing-flush
    b = old; //~ missing-flush
}

} // namespace store

int main(int argc, char **argv) {
    auto *cells = static_cast<uint64_t *>(pool_open(argv[argc - 1], 4096));
    cells[0] = 1;
    cells[8] = 2;
    pm_persist(&cells[0], sizeof cells[0]);
    pm_persist(&cells[8], sizeof cells[8]);
    store::exchange(cells[0], cells[8]);
    printf("%lu %lu\n", (unsigned long)cells[0], (unsigned long)cells[8]);
    return 0;
}
