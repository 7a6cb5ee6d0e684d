// setup: yes
// A new version is written to another file and renamed over the old one, before its content is persistent.
#include "../app.h"

struct document {
    uint64_t version;
    _Alignas(LINE) uint64_t words[4];
};

static void write_version(struct document *document, uint64_t version) {
    for (uint64_t i = 0; i < 4; i++)
        document->words[i] = version * 10 + i; //~ crash-order one-of
    document->version = version; //~ crash-order one-of
}

static void replace(const char *path, uint64_t version) {
    char name[4096];
    snprintf(name, sizeof name, "%s.new", path);
    struct document *document = (struct document *)pm_map(name, PAGE);
    write_version(document, version);
    if (rename(name, path) != 0) //~? persisted
        pm_die(name);
    pm_persist(document, sizeof *document);
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
