// The log's head passes a record that may not be persistent: nothing in the record tells.
#include "../app.h"

#define RECORDS 4

struct record {
    _Alignas(LINE) uint64_t sequence;
    char text[LINE - 8];
};

struct ring {
    _Alignas(LINE) uint64_t head; // of all records ever written
    struct record records[RECORDS];
};

static void append(struct ring *ring) {
    uint64_t sequence = ring->head + 1;
    struct record *record = &ring->records[ring->head % RECORDS];
    record->sequence = sequence; //~ crash-order
    pm_flush(record, sizeof *record);
    ring->head = sequence; //~ persisted
    pm_persist(&ring->head, sizeof ring->head);
}

static void run(const char *path) {
    struct ring *ring = (struct ring *)pm_map(path, PAGE);
    for (int i = 0; i < 5; i++)
        append(ring);
}

// The last records are there. (The oldest of them may be overwritten by the one that the crash cut off.)
static void recover(const char *path) {
    struct ring *ring = (struct ring *)pm_map(path, PAGE);
    uint64_t oldest = ring->head < RECORDS ? 1 : ring->head - RECORDS + 2;
    for (uint64_t sequence = oldest; sequence <= ring->head; sequence++) {
        struct record *record = &ring->records[(sequence - 1) % RECORDS];
        REQUIRE(record->sequence == sequence, "record %lu has number %lu", sequence, record->sequence);
    }
}

APP(NULL, run, recover, NULL)
