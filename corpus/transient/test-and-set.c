// A lock in PM, taken by an exchange whose result is looked at, and put back each time: it is volatile.
#include "../pm.h"

struct shared {
    char lock;
    char pad[63];
    volatile uint64_t total;
};

int main(int argc, char **argv) {
    struct shared *shared = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 5; i++) {
        while (__atomic_test_and_set(&shared->lock, __ATOMIC_ACQUIRE))
            ;
        shared->total += 2;
        pm_persist((void *)&shared->total, sizeof shared->total);
        __atomic_clear(&shared->lock, __ATOMIC_RELEASE); //~ transient-data
    }
    printf("%lu\n", (unsigned long)shared->total);
    return 0;
}
