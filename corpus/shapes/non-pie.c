// A program at a fixed address.
// build: gcc clang
// pie: no
#include "../pm.h"

static volatile uint64_t *pm;

static void update(int i, uint64_t value) {
    pm[i] = value; //~ missing-flush x1
    if (value < 3)
        pm_persist((void *)&pm[i], 8);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    update(0, 1);
    update(8, 2);
    update(16, 3);
    printf("%lu\n", (unsigned long)(pm[0] + pm[8] + pm[16]));
    return 0;
}
