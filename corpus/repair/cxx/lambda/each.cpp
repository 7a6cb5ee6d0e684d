// repair: flush
// build: $CXX -g -O2 -o app each.cpp
// The store is in a lambda.
#include "persist.h"
#include "pool.h"

template <typename F> static void each(uint64_t *cells, int count, F &&f) {
    for (int i = 0; i < count; i++)
        f(cells[i * 8]);
}

static void number(uint64_t *cells, uint64_t from) {
    each(cells, 4, [&](uint64_t &cell) {
        cell = from++; //~ missing-flush
    });
    pm_fence();
}

int main(int argc, char **argv) {
    auto *cells = static_cast<uint64_t *>(pool_open(argv[argc - 1], 4096));
    number(cells, 40);
    printf("%lu\n", (unsigned long)cells[24]);
    return 0;
}
