// The lock is in ordinary memory.
#include "../pm.h"

struct shared {
    char lock;
    char pad[63];
    volatile uint64_t total;
};

static char lock;

int main(int argc, char **argv) {
    struct shared *shared = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 5; i++) {
        while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
            ;
        shared->total += 2;
        pm_persist((void *)&shared->total, sizeof shared->total);
        __atomic_clear(&lock, __ATOMIC_RELEASE);
    }
    printf("%lu\n", (unsigned long)shared->total);
    return 0;
}
