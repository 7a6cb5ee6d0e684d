// As same-line-in-two-files.c, with the data flushed.
#include "../pm.h"

static void put(volatile uint64_t *at, uint64_t value) {
    at[8] = value;
    pm_persist((void *)&at[8], sizeof *at);
}

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096];
    snprintf(path, sizeof path, "%s.scratch", argv[argc - 1]);
    volatile uint64_t *scratch = pm_map(path, PAGE);
    put(scratch, 1);
    unlink(path);
    put(data, 2);
    data[0] = 7;
    pm_persist((void *)data, sizeof *data);
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
