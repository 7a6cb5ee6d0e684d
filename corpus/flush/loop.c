// Every other element of a table of lines is flushed.
#include "../pm.h"

struct slot {
    volatile uint64_t value;
    char pad[56];
};

int main(int argc, char **argv) {
    struct slot *table = pm_map(argv[argc - 1], PAGE);
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++)
        table[i].value = (uint64_t)i * 3; //~ missing-flush x8
    for (int i = 0; i < 16; i += 2)
        PM_CLWB(&table[i]);
    PM_SFENCE();
    for (int i = 0; i < 16; i++)
        sum += table[i].value;
    printf("sum %lu\n", sum);
    return 0;
}
