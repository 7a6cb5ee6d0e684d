// link: -lpmem
// By libpmem: the note persists before its length.
#include "../app.h"
#include <libpmem.h>

struct note {
    _Alignas(LINE) uint64_t length;
    _Alignas(LINE) char text[2 * LINE];
};

static void put(struct note *note, const char *text, size_t length) {
    pmem_memcpy_persist(note->text, text, length);
    note->length = length;
    pmem_persist(&note->length, sizeof note->length);
}

static void run(const char *path) {
    struct note *notes = (struct note *)pm_map(path, PAGE);
    put(&notes[0], "to buy", 7);
    put(&notes[1], "to sell", 8);
    munmap(notes, PAGE);
}

static void recover(const char *path) {
    struct note *notes = (struct note *)pm_map(path, PAGE);
    const char *texts[] = {"to buy", "to sell"};
    for (int i = 0; i < 2; i++)
        REQUIRE(memcmp(notes[i].text, texts[i], notes[i].length) == 0, "note %d is not what was written", i);
}

APP(NULL, run, recover, NULL)
