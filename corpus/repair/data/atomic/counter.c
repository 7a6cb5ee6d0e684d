// repair: flush+fence
// A C11 atomic; its release store is no fence for the flush.
#include "persist.h"
#include "pool.h"
#include <stdatomic.h>

struct counter {
    _Atomic uint64_t value;
};

static void publish(struct counter *counter, uint64_t value) {
    atomic_store_explicit(&counter->value, value, memory_order_release);
}

int main(int argc, char **argv) {
    struct counter *counter = pool_open(argv[argc - 1], 4096);
    publish(counter, 12); //~ missing-flush
    printf("%lu\n", (unsigned long)counter->value);
    return 0;
}
