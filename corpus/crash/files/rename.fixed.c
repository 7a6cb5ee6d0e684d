// setup: yes
// As rename.c, but the new version is persistent before it takes the old one's name.
#include "../app.h"

struct document {
    uint64_t version;
    _Alignas(LINE) uint64_t words[4];
};

static void write_version(struct document *document, uint64_t version) {
    for (uint64_t i = 0; i < 4; i++)
        document->words[i] = version * 10 + i;
    document->version = version;
}

static void replace(const char *path, uint64_t version) {
    char name[4096];
    snprintf(name, sizeof name, "%s.new", path);
    struct document *document = (struct document *)pm_map(name, PAGE);
    write_version(document, version);
    pm_persist(document, sizeof *document);
    if (rename(name, path) != 0)
        pm_die(name);
}

static void setup(const char *path) {
    replace(path, 1);
}

static void run(const char *path) {
    struct document *old = (struct document *)pm_map(path, PAGE);
    replace(path, old->version + 1);
}

static void recover(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.new", path);
    unlink(name);
    struct document *document = (struct document *)pm_map(path, PAGE);
    REQUIRE(document->version == 1 || document->version == 2, "version %lu", document->version);
    for (uint64_t i = 0; i < 4; i++)
        REQUIRE(document->words[i] == document->version * 10 + i, "word %lu of version %lu is %lu", i,
                document->version, document->words[i]);
}

APP(setup, run, recover, NULL)
