// Non-temporal stores need no flush, but they need a fence.
// build: gcc clang
// cflags: -msse2
#include "../pm.h"
#include <emmintrin.h>

int main(int argc, char **argv) {
    long long *pm = pm_map(argv[argc - 1], PAGE);
    _mm_stream_si64(pm, 11);
    PM_SFENCE();
    _mm_stream_si64(pm + 1, 22);
    PM_SFENCE();
    printf("%lld %lld\n", pm[0], pm[1]);
    return 0;
}
