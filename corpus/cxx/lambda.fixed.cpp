// Updates are passed as lambdas to a function that persists one object too few.
#include "../pm.h"
#include <functional>

struct Pair {
    volatile long a;
    char pad[56];
    volatile long b;
};

static void update(Pair *pair, const std::function<void(Pair *)> &change) {
    change(pair);
    PM_CLWB(&pair->a);
    PM_CLWB(&pair->b);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    Pair *pair = static_cast<Pair *>(pm_map(argv[argc - 1], PAGE));
    long amount = argc + 10;
    update(pair, [amount](Pair *p) {
        p->a = amount;
        p->b = -amount;
    });
    printf("%ld %ld\n", (long)pair->a, (long)pair->b);
    return 0;
}
