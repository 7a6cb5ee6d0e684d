// A block of the heap that shares its pages with others, and with what the allocator keeps there.
#include "../pm.h"

int main(void) {
    char *blocks[64];
    for (int i = 0; i < 64; i++)
        blocks[i] = calloc(1, 100);
    uint64_t *words = (uint64_t *)blocks[20];
    PM_REGISTER(words, 96);
    for (int i = 0; i < 64; i++)
        if (i != 20)
            memset(blocks[i], i, 100);
    words[0] = 1;
    pm_persist(words, 8);
    words[9] = 2;
    pm_persist(words + 9, 8);
    for (int i = 0; i < 64; i += 2)
        if (i != 20)
            free(blocks[i]);
    for (int i = 0; i < 64; i++)
        blocks[0] = malloc(40 + i);
    memset(blocks[0], 3, 100);
    // A read into the page, beside the range.
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "hello", 6) != 6 || read(ends[0], blocks[21], 6) != 6)
        pm_die("pipe");
    printf("%s %lu %lu\n", blocks[21], words[0], words[9]);
    return 0;
}
