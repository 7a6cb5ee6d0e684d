// A range that is not aligned to lines touches one line more than its length suggests.
#include "../pm.h"

static void persist(char *at, size_t len) {
    for (size_t i = 0; i < len; i += LINE)
        PM_CLWB(at + i);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    char *record = pm + 40;
    for (int i = 0; i < 128; i++)
        ((volatile char *)record)[i] = (char)i; //~ missing-flush x40
    persist(record, 128);
    printf("last %d\n", record[127]);
    return 0;
}
