// setup: yes
// As ring-checksum.c, but the checksum covers the sequence number: whatever persists first, a torn record is seen.
#include "../app.h"

#define RECORDS 2

struct record {
    _Alignas(LINE) uint64_t sequence;
    _Alignas(LINE) uint64_t payload;
    uint64_t checksum;
};

struct ring {
    struct record records[RECORDS];
};

static uint64_t payload_of(uint64_t sequence) {
    return sequence * 0x9e3779b97f4a7c15ull;
}

static uint64_t checksum_of(uint64_t sequence, uint64_t payload) {
    return (payload ^ sequence ^ 0x5bd1e995) * 0x100000001b3ull;
}

static void append(struct ring *ring, uint64_t sequence) {
    struct record *record = &ring->records[sequence % RECORDS];
    record->sequence = sequence;
    record->payload = payload_of(sequence);
    PM_BARRIER();
    record->checksum = checksum_of(sequence, record->payload);
    pm_persist(record, sizeof *record);
}

static void setup(const char *path) {
    struct ring *ring = (struct ring *)pm_map(path, PAGE);
    append(ring, 1);
    append(ring, 2);
}

static void run(const char *path) {
    struct ring *ring = (struct ring *)pm_map(path, PAGE);
    append(ring, 3);
    append(ring, 4);
}

// A record whose checksum is wrong was being written; the others must be what they say.
static void recover(const char *path) {
    struct ring *ring = (struct ring *)pm_map(path, PAGE);
    int valid = 0;
    for (int i = 0; i < RECORDS; i++) {
        struct record *record = &ring->records[i];
        if (record->checksum != checksum_of(record->sequence, record->payload))
            continue;
        REQUIRE(record->payload == payload_of(record->sequence), "record %lu holds another one's payload",
                record->sequence);
        valid++;
    }
    REQUIRE(valid >= RECORDS - 1, "%d valid records", valid);
}

APP(setup, run, recover, NULL)
