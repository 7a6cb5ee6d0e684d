// repair: flush
// `*to++ = …` in a loop: the address cannot be named again by the same expression.
#include "persist.h"
#include "pool.h"

static char *put(char *to, const char *text) {
    while (*text)
        *to++ = *text++; //~ missing-flush
    pm_fence();
    return to;
}

int main(int argc, char **argv) {
    char *text = pool_open(argv[argc - 1], 4096);
    char *end = put(text, "a sentence that is longer than a cache line, so that more than one is dirty.");
    printf("%ld %s\n", (long)(end - text), text);
    return 0;
}
