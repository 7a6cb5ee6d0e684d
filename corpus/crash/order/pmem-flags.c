// link: -lpmem
// As pmem-copy.c, but a caller says whether the copy waits for its flushes: where it does not, moving it would not put it in order.
#include "../app.h"
#include <libpmem.h>

struct note {
    _Alignas(LINE) uint64_t length;
    _Alignas(LINE) char text[2 * LINE];
};

static void put(struct note *note, const char *text, size_t length, unsigned flags) {
    note->length = length; //~ persisted
    pmem_persist(&note->length, sizeof note->length);
    pmem_memcpy(note->text, text, length, flags); //~ crash-order
}

static void run(const char *path) {
    struct note *notes = (struct note *)pm_map(path, PAGE);
    unsigned flags = getenv("LAZY") ? PMEM_F_MEM_NODRAIN : 0;
    put(&notes[0], "to buy", 7, flags);
    put(&notes[1], "to sell", 8, flags);
    munmap(notes, PAGE);
}

static void recover(const char *path) {
    struct note *notes = (struct note *)pm_map(path, PAGE);
    const char *texts[] = {"to buy", "to sell"};
    for (int i = 0; i < 2; i++)
        REQUIRE(memcmp(notes[i].text, texts[i], notes[i].length) == 0, "note %d is not what was written", i);
}

APP(NULL, run, recover, NULL)
