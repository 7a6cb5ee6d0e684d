// repair: fence
// build: $CC -g -O2 -msse2 -o app words.c
// Non-temporal stores need only the fence.
#include "pool.h"
#include <emmintrin.h>
#include <stdint.h>

static void put(long long *words, long long value) {
    for (int i = 0; i < 4; i++)
        _mm_stream_si64(&words[i], value + i); //~ missing-fence in-stack
}

int main(int argc, char **argv) {
    long long *words = pool_open(argv[argc - 1], 4096);
    put(words, 30);
    printf("%lld\n", words[3]);
    return 0;
}
