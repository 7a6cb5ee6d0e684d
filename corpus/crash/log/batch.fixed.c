// As batch.c, but the fence waits for the entries, and a second one for the count.
#include "../app.h"

#define BATCH 6

struct log {
    _Alignas(LINE) uint64_t count;
    struct {
        _Alignas(LINE) uint64_t value;
    } entries[2 * BATCH];
};

static void append_batch(struct log *log) {
    uint64_t count = log->count;
    for (uint64_t i = count; i < count + BATCH; i++) {
        log->entries[i].value = i * i + 1;
        PM_CLWB(&log->entries[i]);
    }
    PM_SFENCE();
    log->count = count + BATCH;
    PM_CLWB(&log->count);
    PM_SFENCE();
}

static void run(const char *path) {
    struct log *log = (struct log *)pm_map(path, PAGE);
    append_batch(log);
    append_batch(log);
}

static void recover(const char *path) {
    struct log *log = (struct log *)pm_map(path, PAGE);
    REQUIRE(log->count <= 2 * BATCH, "%lu entries", log->count);
    for (uint64_t i = 0; i < log->count; i++)
        REQUIRE(log->entries[i].value == i * i + 1, "entry %lu is %lu", i, log->entries[i].value);
}

APP(NULL, run, recover, NULL)
