// AVX and AVX2 stores of 16 and 32 bytes.
// needs: avx2
#include "../pm.h"

static unsigned char pattern[32] __attribute__((aligned(32)));

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 32; i++)
        pattern[i] = (unsigned char)(i + 1);
#define STORE(insn, reg, n) __asm__ volatile("vmovdqa %1, %%ymm5\n\t" insn " %%" reg ", %0" : "=m"(*(char(*)[32])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("vmovaps", "ymm5", 0); //~ missing-flush
    STORE("vmovups", "ymm5", 1); //~ missing-flush
    STORE("vmovapd", "ymm5", 2); //~ missing-flush
    STORE("vmovdqa", "ymm5", 3); //~ missing-flush
    STORE("vmovdqu", "ymm5", 4); //~ missing-flush
    STORE("vmovdqu", "xmm5", 5); //~ missing-flush
    STORE("vmovaps", "xmm5", 6); //~ missing-flush
    STORE("vmovss", "xmm5", 7); //~ missing-flush
    STORE("vmovsd", "xmm5", 8); //~ missing-flush
    STORE("vmovlps", "xmm5", 9); //~ missing-flush
    STORE("vmovhpd", "xmm5", 10); //~ missing-flush
    STORE("vmovq", "xmm5", 11); //~ missing-flush
    STORE("vmovd", "xmm5", 12); //~ missing-flush
    STORE("vextractf128 $1,", "ymm5", 13); //~ missing-flush
    STORE("vextracti128 $0,", "ymm5", 14); //~ missing-flush
    STORE("vextracti128 $1,", "ymm5", 15); //~ missing-flush
    __asm__ volatile("vmovdqa %1, %%ymm5\n\tvmovdqu %%ymm5, 45(%0)" : : "r"(pm + 16 * LINE), "m"(pattern) : "xmm5", "memory"); //~ missing-flush
    __asm__ volatile("vmovdqa %1, %%ymm15\n\tvmovups %%ymm15, %0\n\tvzeroupper" : "=m"(*(char(*)[32])(pm + 18 * LINE)) : "m"(pattern) : "xmm15"); //~ missing-flush
    for (int i = 0; i < 19; i++)
        pm_print("avx", pm + i * LINE, 64);
    return 0;
}
