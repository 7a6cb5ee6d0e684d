// setup: yes
// A new version is put in the place of the old one before it is persistent.
// The old version is there before, and the program never maps it.
#include "../app.h"

struct document {
    uint64_t version;
    _Alignas(LINE) uint64_t words[2];
};

static void replace(const char *path, uint64_t version) {
    char name[4096];
    snprintf(name, sizeof name, "%s.data", path);
    struct document *document = (struct document *)pm_map(name, PAGE);
    for (uint64_t i = 0; i < 2; i++)
        document->words[i] = version * 10 + i; //~ crash-order one-of
    document->version = version; //~ crash-order one-of
    if (rename(name, path) != 0) //~? persisted
        pm_die(name);
    pm_persist(document, sizeof *document);
}

static void setup(const char *path) {
    replace(path, 1);
}

static void run(const char *path) {
    replace(path, 2);
}

static void recover(const char *path) {
    REQUIRE(access(path, F_OK) == 0, "neither the old version nor the new one is there");
    struct document *document = (struct document *)pm_map(path, PAGE);
    REQUIRE(document->version == 1 || document->version == 2, "version %lu", document->version);
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE(document->words[i] == document->version * 10 + i, "word %lu of version %lu is %lu", i,
                document->version, document->words[i]);
}

APP(setup, run, recover, NULL)
