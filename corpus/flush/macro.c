// The store hides in a macro: the line is that of its use.
// build: gcc clang
#include "../pm.h"

#define SET_FIELD(object, field, value) \
    do { \
        (object)->field = (value); \
    } while (0)

#define SET_AND_PERSIST(object, field, value) \
    do { \
        SET_FIELD(object, field, value); \
        PM_CLWB(&(object)->field); \
        PM_SFENCE(); \
    } while (0)

struct point {
    volatile int x;
    char pad[60];
    volatile int y;
};

int main(int argc, char **argv) {
    struct point *point = pm_map(argv[argc - 1], PAGE);
    SET_AND_PERSIST(point, x, 3);
    SET_FIELD(point, y, 4); //~ missing-flush
    printf("%d %d\n", point->x, point->y);
    return 0;
}
