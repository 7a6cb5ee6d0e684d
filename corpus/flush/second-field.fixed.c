// Data and flag are each flushed, the flag after the data is durable.
#include "../pm.h"

struct record {
    char data[64];
    uint64_t valid;
};

int main(int argc, char **argv) {
    struct record *record = pm_map(argv[argc - 1], PAGE);
    memset(record->data, 'x', sizeof record->data);
    pm_persist(record->data, sizeof record->data);
    record->valid = 1;
    pm_persist(&record->valid, sizeof record->valid);
    printf("valid %lu\n", record->valid);
    return 0;
}
