// The forgotten store is in a mapping long gone; the file is mapped again and used rightly.
#include "../pm.h"

int main(int argc, char **argv) {
    for (uint64_t round = 0; round < 3; round++) {
        volatile uint64_t *pm = pm_map(argv[argc - 1], 2 * PAGE);
        pm[0] += round;
        pm_persist((void *)&pm[0], 8);
        pm[8 + round * 8] = round; //~ missing-flush
        if (round != 1)
            pm_persist((void *)&pm[8 + round * 8], 8);
        printf("%lu\n", (unsigned long)pm[0]);
        munmap((void *)pm, 2 * PAGE);
    }
    return 0;
}
