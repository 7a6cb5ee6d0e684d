// setup: yes
// brute-force: no, its images are files in one directory
// As unnamed-elsewhere.c, but what the document says is persistent before its version.
#include "../app.h"
#include <errno.h>

struct document {
    uint64_t version;
    _Alignas(LINE) uint64_t words[2];
};

static void name_of(char *name, const char *path) {
    snprintf(name, 4096, "%s.documents/final", path);
}

static void publish(const char *path) {
    char folder[4096], link[64], first[4096], final[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    int fd = open(slash ? folder : ".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(folder);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(first, sizeof first, "%s.documents/first", path);
    name_of(final, path);
    if (linkat(AT_FDCWD, link, AT_FDCWD, first, AT_SYMLINK_FOLLOW) != 0 || rename(first, final) != 0)
        pm_die(final);
    struct document *document = (struct document *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    document->words[0] = 10;
    document->words[1] = 11;
    pm_persist(document->words, sizeof document->words);
    document->version = 1;
    pm_persist(document, sizeof *document);
}

static void setup(const char *path) {
    char folder[4096], name[4096];
    uint64_t *rounds = (uint64_t *)pm_map(path, PAGE);
    *rounds = 1;
    pm_persist(rounds, sizeof *rounds);
    snprintf(folder, sizeof folder, "%s.documents", path);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        pm_die(folder);
    name_of(name, path);
    unlink(name); // of the run before
}

static void run(const char *path) {
    uint64_t *rounds = (uint64_t *)pm_map(path, PAGE);
    *rounds = 2;
    pm_persist(rounds, sizeof *rounds);
    publish(path);
}

static void recover(const char *path) {
    char name[4096];
    uint64_t *rounds = (uint64_t *)pm_map(path, PAGE);
    REQUIRE(*rounds == 1 || *rounds == 2, "%lu rounds", *rounds);
    name_of(name, path);
    if (access(name, F_OK) != 0)
        return;
    struct document *document = (struct document *)pm_map(name, PAGE);
    if (document->version == 0)
        return;
    REQUIRE(document->words[0] == 10 && document->words[1] == 11, "words %lu, %lu", document->words[0],
            document->words[1]);
}

APP(setup, run, recover, NULL)
