// What is freed, or moved by realloc, is not persistent any more: its next owner need not flush.
#include "../pm.h"

static volatile uint64_t *block(size_t size) {
    volatile uint64_t *words = malloc(size);
    if (words == NULL)
        pm_die("malloc");
    PM_REGISTER(words, size);
    return words;
}

int main(void) {
    volatile uint64_t *small = block(200);
    small[0] = 1;
    pm_persist((void *)small, 8);
    free((void *)small);
    uint64_t *again = malloc(200);
    memset(again, 2, 200);
    // Large enough for a mapping of its own, which is unmapped and moved.
    volatile uint64_t *large = block(1 << 20);
    large[1000] = 3;
    pm_persist((void *)(large + 1000), 8);
    uint64_t *moved = realloc((void *)large, 4 << 20);
    if (moved == NULL || moved[1000] != 3)
        pm_die("realloc");
    moved[1000] = 4;
    free(moved);
    large = block(1 << 20);
    free((void *)large);
    large = malloc(1 << 20);
    memset((void *)large, 5, 1 << 20);
    printf("%lu %lu\n", again[24], large[99]);
    return 0;
}
