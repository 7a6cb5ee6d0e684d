// setup: yes
// As append.c, but the record is appended before the count is raised.
#include "../app.h"

// The count has a page, and the records follow it.
static void append(const char *path, volatile uint64_t *count, uint64_t value) {
    int fd = open(path, O_RDWR | O_APPEND);
    if (fd < 0 || pwrite(fd, &value, sizeof value, 64) != sizeof value)
        pm_die(path);
    close(fd);
    *count += 1;
    pm_persist((void *)count, sizeof *count);
}

static void setup(const char *path) {
    append(path, pm_map(path, PAGE), 1);
}

static void run(const char *path) {
    volatile uint64_t *count = pm_map(path, PAGE);
    append(path, count, 2);
    append(path, count, 3);
}

static void recover(const char *path) {
    volatile uint64_t *count = pm_map(path, PAGE);
    int fd = open(path, O_RDONLY);
    for (uint64_t record = 0; record < *count; record++) {
        uint64_t value;
        ssize_t got = pread(fd, &value, sizeof value, PAGE + record * sizeof value);
        REQUIRE(got == sizeof value, "record %lu of %lu is missing", record, *count);
        REQUIRE(value == record + 1, "record %lu holds %lu", record, value);
    }
}

APP(setup, run, recover, NULL)
