// repair: subprogram copy_bytes
// A hand-written memcpy for volatile and persistent data; the persistent caller forgets the flush.
#include "persist.h"
#include "pool.h"
#include <string.h>

struct page {
    uint64_t sequence;
    char pad[56];
    char text[128];
};

__attribute__((noinline)) static void copy_bytes(char *to, const char *from, size_t len) {
    for (size_t i = 0; i < len; i++)
        to[i] = from[i];
}

static void store_page(struct page *page, const char *text) {
    char buffer[128];
    memset(buffer, 0, sizeof buffer);
    copy_bytes(buffer, text, strlen(text));
    copy_bytes(page->text, buffer, sizeof buffer); //~ missing-flush
    pm_fence();
    page->sequence = 1;
    pm_persist(&page->sequence, sizeof page->sequence);
}

int main(int argc, char **argv) {
    struct page *page = pool_open(argv[argc - 1], 4096);
    store_page(page, "the quick brown fox");
    printf("%lu %s\n", (unsigned long)page->sequence, page->text);
    return 0;
}
