// A non-temporal copy whose tail is stored plainly and forgotten.
// cflags: -msse2
#include "../pm.h"
#include <emmintrin.h>

static void copy(char *to, const char *from, size_t len) {
    for (; len >= 16; to += 16, from += 16, len -= 16)
        _mm_stream_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
    for (volatile char *tail = to; len > 0; len--) {
        *tail = *from++;
        if (len == 1)
            PM_CLWB(tail);
        tail++;
    }
    PM_SFENCE();
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    char text[201];
    for (int i = 0; i < 201; i++)
        text[i] = (char)('a' + i % 26);
    copy(pm, text, sizeof text);
    printf("%.26s %d\n", pm, memcmp(pm, text, sizeof text));
    return 0;
}
