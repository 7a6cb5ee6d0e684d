// repair: flush+fence
// A struct is assigned whole: 192 bytes, from the middle of a line.
#include "persist.h"
#include "pool.h"

struct record {
    uint64_t words[24];
};

struct file {
    uint64_t magic;
    char pad[24];
    struct record records[4];
};

static void put(struct file *file, int at, const struct record *record) {
    file->records[at] = *record;
}

int main(int argc, char **argv) {
    struct file *file = pool_open(argv[argc - 1], 4096);
    struct record record;
    for (int i = 0; i < 24; i++)
        record.words[i] = i + 1;
    put(file, 2, &record); //~ missing-flush
    printf("%lu %lu\n", (unsigned long)file->records[2].words[0], (unsigned long)file->records[2].words[23]);
    return 0;
}
