// setup: yes
// The length is raised before the file has grown and the data is there: recovery looks for it behind the end.
#include "../app.h"

// The header has a page; each block of data another one.
struct header {
    uint64_t blocks;
};

static void append(const char *path, struct header *header, uint64_t value) {
    uint64_t block = header->blocks;
    header->blocks = block + 1; //~ persisted
    pm_persist(&header->blocks, sizeof header->blocks);
    if (truncate(path, (block + 2) * PAGE) != 0) //~ crash-order
        pm_die(path);
    char *file = (char *)pm_map(path, (block + 2) * PAGE);
    uint64_t *data = (uint64_t *)(file + (block + 1) * PAGE);
    *data = value; //~? crash-order
    pm_persist(data, sizeof *data);
    munmap(file, (block + 2) * PAGE);
}

static void setup(const char *path) {
    append(path, (struct header *)pm_map(path, PAGE), 1);
}

static void run(const char *path) {
    struct header *header = (struct header *)pm_map(path, PAGE);
    append(path, header, 2);
    append(path, header, 3);
}

static void recover(const char *path) {
    struct stat st;
    struct header *header = (struct header *)pm_map(path, PAGE);
    if (stat(path, &st) != 0)
        pm_die(path);
    REQUIRE((header->blocks + 1) * PAGE <= (uint64_t)st.st_size, "%lu blocks in a file of %ld bytes", header->blocks,
            st.st_size);
    char *file = (char *)pm_map(path, (header->blocks + 1) * PAGE);
    for (uint64_t block = 0; block < header->blocks; block++) {
        uint64_t value = *(uint64_t *)(file + (block + 1) * PAGE);
        REQUIRE(value == block + 1, "block %lu holds %lu", block, value);
    }
}

APP(setup, run, recover, NULL)
