// setup: yes
// crash: --jobs 3
// The file is made and filled before it is promised.
#include "../app.h"

struct header {
    uint64_t has_data;
    _Alignas(LINE) uint64_t rounds;
};

static const char *data_of(const char *path) {
    static char name[4096];
    snprintf(name, sizeof name, "%s.data", path);
    return name;
}

static uint64_t *make_data(const char *path) {
    int fd = open(data_of(path), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(path);
    return (uint64_t *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void promise(struct header *header) {
    header->has_data = 1;
    pm_persist(&header->has_data, sizeof header->has_data);
}

static void setup(const char *path) {
    struct header *header = (struct header *)pm_map(path, PAGE);
    header->rounds = 1;
    pm_persist(header, sizeof *header);
}

static void run(const char *path) {
    struct header *header = (struct header *)pm_map(path, PAGE);
    for (uint64_t round = 2; round < 6; round++) {
        header->rounds = round;
        pm_persist(&header->rounds, sizeof header->rounds);
    }
    uint64_t *data = make_data(path);
    *data = 7;
    pm_persist(data, sizeof *data);
    promise(header);
}

static void recover(const char *path) {
    struct header *header = (struct header *)pm_map(path, PAGE);
    REQUIRE(header->rounds > 0, "no rounds");
    if (header->has_data) {
        REQUIRE(access(data_of(path), F_OK) == 0, "the data is promised, and there is no file");
        uint64_t *data = (uint64_t *)pm_map(data_of(path), PAGE);
        REQUIRE(*data == 7, "the data is %lu", *data);
    }
    // Whoever is here first after a crash makes the file: the next state must not find it.
    REQUIRE(header->rounds == 5 || access(data_of(path), F_OK) != 0, "the file is there after round %lu", header->rounds);
    pm_map(data_of(path), PAGE);
}

APP(setup, run, recover, NULL)
