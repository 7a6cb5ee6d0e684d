// repair: flush+fence, flush+fence
// build: $CXX -g -O2 -o app box.cpp
// A template, of which two instances are used; both store to PM.
#include "persist.h"
#include "pool.h"

template <typename T> struct Box {
    T value;

    void set(const T &to) {
        value = to;
    }
};

int main(int argc, char **argv) {
    char *pm = static_cast<char *>(pool_open(argv[argc - 1], 4096));
    auto *number = reinterpret_cast<Box<uint64_t> *>(pm);
    auto *letter = reinterpret_cast<Box<char> *>(pm + 128);
    number->set(31); //~ missing-flush
    letter->set('q'); //~ missing-flush
    printf("%lu %c\n", (unsigned long)number->value, letter->value);
    return 0;
}
