// repair: subprogram+fence even
// Two functions that call each other, and return a value.
#include "persist.h"
#include "pool.h"

struct step {
    uint64_t value;
    uint64_t pad[7];
};

static int odd(struct step *steps, int left);

__attribute__((noinline)) static int even(struct step *steps, int left) {
    if (left == 0)
        return 0;
    steps[left].value = 2; //~ missing-flush
    return 1 + odd(steps, left - 1);
}

__attribute__((noinline)) static int odd(struct step *steps, int left) {
    if (left == 0)
        return 0;
    steps[left].value = 1; //~ missing-flush
    return 1 + even(steps, left - 1);
}

static struct step scratch[8];

int main(int argc, char **argv) {
    struct step *steps = pool_open(argv[argc - 1], 4096);
    int sum = even(scratch, 7);
    sum += even(scratch, 5);
    sum += even(steps, 6);
    printf("%d %lu %lu\n", sum, (unsigned long)steps[6].value, (unsigned long)steps[5].value);
    return 0;
}
