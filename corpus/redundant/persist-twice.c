// A helper persists its object, and its caller does so again.
#include "../pm.h"

struct counter {
    volatile uint64_t count;
};

static void persist(const void *at) {
    PM_CLWB(at);
    PM_SFENCE();
}

static void increment(struct counter *counter) {
    counter->count++;
    persist(counter);
}

int main(int argc, char **argv) {
    struct counter *counter = pm_map(argv[argc - 1], PAGE);
    increment(counter);
    persist(counter); //~ redundant-flush x1 //~? redundant-fence
    printf("%lu\n", (unsigned long)counter->count);
    return 0;
}
