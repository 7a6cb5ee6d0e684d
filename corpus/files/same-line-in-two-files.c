// One line stores to a file that is deleted and to one that is kept: what the kept one loses is reported.
#include "../pm.h"

static void put(volatile uint64_t *at, uint64_t value) {
    at[8] = value;
}

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096];
    snprintf(path, sizeof path, "%s.scratch", argv[argc - 1]);
    volatile uint64_t *scratch = pm_map(path, PAGE);
    put(scratch, 1);
    unlink(path);
    put(data, 2); //~ missing-flush
    data[0] = 7; //~ missing-flush
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
