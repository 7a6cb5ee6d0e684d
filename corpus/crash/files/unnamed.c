// setup: yes
// A new version is written to a file without a name, which gets its name before all of it is persistent.
#include "../app.h"

struct document {
    uint64_t version;
    _Alignas(LINE) uint64_t words[2];
};

static void publish(const char *path, const char *name) {
    char folder[4096], link[64];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    int fd = open(slash ? folder : ".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(folder);
    struct document *document = (struct document *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    document->words[0] = 10; //~ crash-order one-of
    document->words[1] = 11; //~ crash-order one-of
    document->version = 1;
    pm_persist(&document->version, sizeof document->version);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, link, AT_FDCWD, name, AT_SYMLINK_FOLLOW) != 0) //~? persisted
        pm_die(name);
    pm_persist(document, sizeof *document);
}

static void setup(const char *path) {
    uint64_t *rounds = (uint64_t *)pm_map(path, PAGE);
    *rounds = 1;
    pm_persist(rounds, sizeof *rounds);
}

static void run(const char *path) {
    uint64_t *rounds = (uint64_t *)pm_map(path, PAGE);
    *rounds = 2;
    pm_persist(rounds, sizeof *rounds);
    char name[4096];
    snprintf(name, sizeof name, "%s.data", path);
    publish(path, name);
    acknowledge(1);
}

static void recover(const char *path) {
    uint64_t *rounds = (uint64_t *)pm_map(path, PAGE);
    REQUIRE(*rounds == 1 || *rounds == 2, "%lu rounds", *rounds);
    char name[4096];
    snprintf(name, sizeof name, "%s.data", path);
    if (access(name, F_OK) != 0) {
        REQUIRE(acknowledged() == 0, "the document is acknowledged, and there is none");
        return;
    }
    struct document *document = (struct document *)pm_map(name, PAGE);
    REQUIRE(document->version == 1, "version %lu", document->version);
    REQUIRE(document->words[0] == 10 && document->words[1] == 11, "words %lu, %lu", document->words[0],
            document->words[1]);
}

APP(setup, run, recover, NULL)
