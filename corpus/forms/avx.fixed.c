// AVX and AVX2 stores of 16 and 32 bytes.
// needs: avx2
#include "../pm.h"

static unsigned char pattern[32] __attribute__((aligned(32)));

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 32; i++)
        pattern[i] = (unsigned char)(i + 1);
#define STORE(insn, reg, n) __asm__ volatile("vmovdqa %1, %%ymm5\n\t" insn " %%" reg ", %0" : "=m"(*(char(*)[32])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("vmovaps", "ymm5", 0);
    STORE("vmovups", "ymm5", 1);
    STORE("vmovapd", "ymm5", 2);
    STORE("vmovdqa", "ymm5", 3);
    STORE("vmovdqu", "ymm5", 4);
    STORE("vmovdqu", "xmm5", 5);
    STORE("vmovaps", "xmm5", 6);
    STORE("vmovss", "xmm5", 7);
    STORE("vmovsd", "xmm5", 8);
    STORE("vmovlps", "xmm5", 9);
    STORE("vmovhpd", "xmm5", 10);
    STORE("vmovq", "xmm5", 11);
    STORE("vmovd", "xmm5", 12);
    STORE("vextractf128 $1,", "ymm5", 13);
    STORE("vextracti128 $0,", "ymm5", 14);
    STORE("vextracti128 $1,", "ymm5", 15);
    __asm__ volatile("vmovdqa %1, %%ymm5\n\tvmovdqu %%ymm5, 45(%0)" : : "r"(pm + 16 * LINE), "m"(pattern) : "xmm5", "memory");
    __asm__ volatile("vmovdqa %1, %%ymm15\n\tvmovups %%ymm15, %0\n\tvzeroupper" : "=m"(*(char(*)[32])(pm + 18 * LINE)) : "m"(pattern) : "xmm15");
    pm_persist(pm, 19 * LINE);
    for (int i = 0; i < 19; i++)
        pm_print("avx", pm + i * LINE, 64);
    return 0;
}
