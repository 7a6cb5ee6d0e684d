// The compiler's intrinsics: clwb, clflushopt, clflush, sfence, mfence.
// build: gcc clang
// cflags: -mclwb -mclflushopt
#include "../pm.h"
#include <immintrin.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    _mm_clwb((void *)&pm[0]);
    pm[8] = 2;
    _mm_clflushopt((void *)&pm[8]);
    _mm_sfence();
    pm[16] = 3;
    _mm_clflush((void *)&pm[16]);
    _mm_clwb((void *)&pm[0]); //~ redundant-flush
    pm[24] = 4; //~ missing-fence
    _mm_clwb((void *)&pm[24]);
    printf("%lu\n", (unsigned long)(pm[0] + pm[8] + pm[16] + pm[24]));
    return 0;
}
