// AVX-512 stores: whole, masked, compressed, scattered, non-temporal.
// needs: avx512f
#include "../pm.h"

static uint32_t pattern[16] __attribute__((aligned(64)));

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (uint32_t i = 0; i < 16; i++)
        pattern[i] = i * LINE;
    __asm__ volatile("vmovdqa64 %0, %%zmm5\n\tkmovw %1, %%k1" : : "m"(pattern), "r"(0xa5a5) : "xmm5");
    __asm__ volatile("vmovdqu64 %%zmm5, (%0)" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vmovdqa32 %%zmm5, 64(%0)" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vmovups %%zmm5, 160(%0)" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vmovdqu32 %%zmm5, 256(%0)%{%%k1%}" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vpcompressd %%zmm5, 320(%0)%{%%k1%}" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vpmovdb %%zmm5, 384(%0)" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vextracti64x4 $1, %%zmm5, 448(%0)" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vmovntdq %%zmm5, 512(%0)" : : "r"(pm) : "memory"); //~ missing-fence
    __asm__ volatile("kxnorw %%k2, %%k2, %%k2\n\tvpscatterdd %%zmm5, 640(%0,%%zmm5)%{%%k2%}" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("vzeroupper");
    for (int i = 0; i < 26; i++)
        pm_print("avx512", pm + i * LINE, 64);
    return 0;
}
