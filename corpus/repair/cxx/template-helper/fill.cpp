// repair: subprogram+fence fill
// build: $CXX -g -O2 -o app fill.cpp
// A function template, used for a volatile vector and for PM.
#include "persist.h"
#include "pool.h"
#include <vector>

template <typename T> __attribute__((noinline)) void fill(T *to, size_t count, T value) {
    for (size_t i = 0; i < count; i++)
        to[i] = value;
}

int main(int argc, char **argv) {
    auto *pm = static_cast<uint32_t *>(pool_open(argv[argc - 1], 4096));
    std::vector<uint32_t> shadow(40);
    fill<uint32_t>(shadow.data(), shadow.size(), 8);
    fill<uint32_t>(pm, 40, 9); //~ missing-flush
    printf("%u %u\n", shadow[39], pm[39]);
    return 0;
}
