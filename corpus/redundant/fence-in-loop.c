// A fence for every element, stored to or not.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *table = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 8; i++) {
        if (i % 4 == 0) {
            table[i * 8] = (uint64_t)i + 1;
            PM_CLWB(&table[i * 8]);
        }
        PM_SFENCE(); //~ redundant-fence x6
    }
    printf("%lu %lu\n", (unsigned long)table[0], (unsigned long)table[32]);
    return 0;
}
