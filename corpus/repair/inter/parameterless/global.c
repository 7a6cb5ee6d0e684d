// repair: flush+fence
// PM is reached through a global pointer: nothing is gained above the store.
#include "persist.h"
#include "pool.h"

static uint64_t *hits;

__attribute__((noinline)) static void hit(void) {
    *hits += 1; //~ missing-flush
}

__attribute__((noinline)) static void serve(void) {
    hit();
}

int main(int argc, char **argv) {
    hits = pool_open(argv[argc - 1], 4096);
    for (int i = 0; i < 3; i++)
        serve();
    printf("%lu\n", (unsigned long)*hits);
    return 0;
}
