// memcpy of many sizes, so that each of libc's paths stores to PM; one of them is never flushed.
#include "../pm.h"

static const size_t sizes[] = {1, 2, 3, 5, 8, 13, 16, 31, 33, 64, 65, 127, 129, 255, 257, 300, 511, 700, 1025, 2049, 4097, 9000};
static char source[9000];

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 16 * PAGE);
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (char)(i * 31 + i / 256);
    char *to = pm;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memcpy(to, source + i, sizes[i]);
        pm_persist(to, sizes[i]);
        to += (sizes[i] + 127) / 64 * 64;
    }
    for (char *p = pm; p < to; p++)
        sum = sum * 33 + (unsigned char)*p;
    printf("%u\n", sum);
    return 0;
}
