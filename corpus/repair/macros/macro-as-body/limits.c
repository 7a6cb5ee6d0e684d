// repair: left
// refuses: in the macro RAISE
// The macro is the body of an if without braces, and its argument is a macro.
#include "persist.h"
#include "pool.h"

struct limits {
    uint64_t low;
    char pad[56];
    uint64_t high;
};

#define LOW(l) ((l)->low)
#define RAISE(place, to) \
    if ((place) < (to))  \
    (place) = (to)

static void adjust(struct limits *limits, uint64_t value) {
    if (value < 100)
        RAISE(LOW(limits), value); //~ missing-flush
    printf("adjusted\n");
}

int main(int argc, char **argv) {
    struct limits *limits = pool_open(argv[argc - 1], 4096);
    adjust(limits, 5);
    adjust(limits, 500);
    printf("%lu\n", (unsigned long)limits->low);
    return 0;
}
