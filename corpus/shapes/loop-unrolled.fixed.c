// A vectorised and unrolled loop: many instructions, one line.
// cflags: -O3 -mavx2
// needs: avx2
#include "../pm.h"

static __attribute__((noinline)) void fill(uint32_t *at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        at[i] = i * i;
}

int main(int argc, char **argv) {
    uint32_t *pm = pm_map(argv[argc - 1], 4 * PAGE);
    uint32_t sum = 0;
    fill(pm, 1000 + (uint32_t)argc);
    pm_persist(pm, 4 * (1000 + (size_t)argc));
    for (int i = 0; i < 1000; i++)
        sum += pm[i];
    printf("%u\n", sum);
    return 0;
}
