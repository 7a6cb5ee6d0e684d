// repair: flush+fence
// Two bugs on one line, and both are the body of an if.
#include "persist.h"
#include "pool.h"

struct point {
    int64_t x;
    char pad[56];
    int64_t y;
};

static void move(struct point *point, int64_t x, int64_t y) {
    if (x != point->x) { point->x = x; point->y = y; } //~ missing-flush x2
}

int main(int argc, char **argv) {
    struct point *point = pool_open(argv[argc - 1], 4096);
    move(point, 3, -4);
    printf("%ld %ld\n", (long)point->x, (long)point->y);
    return 0;
}
