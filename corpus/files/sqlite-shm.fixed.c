// As sqlite-shm.c, with the data flushed.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096], index[4096], other[4096];
    snprintf(path, sizeof path, "%s.db", argv[argc - 1]);
    snprintf(index, sizeof index, "%s.db-shm", argv[argc - 1]);
    snprintf(other, sizeof other, "%s.other-shm", argv[argc - 1]);
    int database = open(path, O_RDWR | O_CREAT, 0600);
    if (write(database, "SQLite format 3", 16) != 16)
        pm_die(path);
    volatile uint64_t *shared = pm_map(index, PAGE);
    shared[0] = 1;
    volatile uint64_t *mine = pm_map(other, PAGE);
    mine[0] = 2;
    pm_persist((void *)mine, sizeof *mine);
    data[0] = 7;
    pm_persist((void *)data, sizeof *data);
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
