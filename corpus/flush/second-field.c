// The flag on the next line is forgotten: only the data's line is flushed.
#include "../pm.h"

struct record {
    char data[64];
    uint64_t valid;
};

int main(int argc, char **argv) {
    struct record *record = pm_map(argv[argc - 1], PAGE);
    memset(record->data, 'x', sizeof record->data);
    pm_persist(record->data, sizeof record->data);
    record->valid = 1; //~ missing-flush
    printf("valid %lu\n", record->valid);
    return 0;
}
