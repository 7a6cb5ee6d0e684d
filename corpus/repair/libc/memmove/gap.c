// repair: flush
// memmove within PM.
#include "persist.h"
#include "pool.h"
#include <string.h>

struct lines {
    uint64_t count;
    char pad[56];
    uint64_t at[32];
};

static void insert(struct lines *lines, uint64_t before, uint64_t value) {
    memmove(&lines->at[before + 1], &lines->at[before], (lines->count - before) * sizeof lines->at[0]); //~ missing-flush
    lines->at[before] = value;
    lines->count++;
    pm_persist(&lines->at[before], sizeof lines->at[before]);
    pm_persist(&lines->count, sizeof lines->count);
}

int main(int argc, char **argv) {
    struct lines *lines = pool_open(argv[argc - 1], 4096);
    for (uint64_t i = 0; i < 20; i++)
        lines->at[i] = i;
    lines->count = 20;
    pm_persist(&lines->count, sizeof lines->count);
    pm_persist(lines->at, 20 * sizeof lines->at[0]);
    insert(lines, 2, 77);
    printf("%lu %lu %lu\n", (unsigned long)lines->count, (unsigned long)lines->at[2], (unsigned long)lines->at[20]);
    return 0;
}
