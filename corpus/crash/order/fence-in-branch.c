// What may wait for the text waits only if its caller wants that; every caller here does, and others need not.
#include "../app.h"

struct page {
    _Alignas(LINE) uint64_t text;
    _Alignas(LINE) uint64_t index;
    _Alignas(LINE) uint64_t listed;
};

static void drain(int now) {
    if (now)
        PM_SFENCE();
}

static void publish(struct page *page, uint64_t text, int now) {
    page->text = text; //~ crash-order
    page->index = text / 100;
    PM_CLWB(&page->index);
    drain(now);
    page->listed = 1; //~ persisted
    PM_CLWB(&page->text);
    PM_CLWB(&page->listed);
    PM_SFENCE();
}

static void run(const char *path) {
    struct page *pages = (struct page *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        publish(&pages[i], 1000 + i, !getenv("LAZY"));
}

static void recover(const char *path) {
    struct page *pages = (struct page *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        REQUIRE(!pages[i].listed || pages[i].text == 1000u + i, "page %d is listed and says %lu", i, pages[i].text);
}

APP(NULL, run, recover, NULL)
