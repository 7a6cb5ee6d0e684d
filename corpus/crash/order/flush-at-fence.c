// A page is listed behind a fence that waits for its index; its text is flushed only with the listing.
#include "../app.h"

struct page {
    _Alignas(LINE) uint64_t text;
    _Alignas(LINE) uint64_t index;
    _Alignas(LINE) uint64_t listed;
};

static void publish(struct page *page, uint64_t text) {
    page->text = text; //~ crash-order
    page->index = text / 100;
    PM_CLWB(&page->index);
    PM_SFENCE();
    page->listed = 1; //~ persisted
    PM_CLWB(&page->text);
    PM_CLWB(&page->listed);
    PM_SFENCE();
}

static void run(const char *path) {
    struct page *pages = (struct page *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        publish(&pages[i], 1000 + i);
}

static void recover(const char *path) {
    struct page *pages = (struct page *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++) {
        struct page *page = &pages[i];
        REQUIRE(!page->listed || (page->text == 1000u + i && page->index == 10), "page %d is listed and says %lu", i,
                page->text);
    }
}

APP(NULL, run, recover, NULL)
