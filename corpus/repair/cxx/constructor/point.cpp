// repair: flush+fence
// build: $CXX -g -O2 -o app point.cpp
// Placement new in PM: the body of the constructor stores.
#include "persist.h"
#include "pool.h"
#include <new>

struct Point {
    Point(int64_t x, int64_t y) {
        x_ = x;
        y_ = y;
    }
    int64_t x_, y_;
};

int main(int argc, char **argv) {
    void *pm = pool_open(argv[argc - 1], 4096);
    auto *point = new (pm) Point(2, 3); //~ missing-flush
    printf("%ld\n", (long)(point->x_ * point->y_));
    return 0;
}
