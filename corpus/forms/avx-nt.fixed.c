// Non-temporal AVX stores.
// needs: avx2
#include "../pm.h"

static unsigned char pattern[32] __attribute__((aligned(32)));

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 32; i++)
        pattern[i] = (unsigned char)(i + 1);
#define STORE(insn, reg, n) __asm__ volatile("vmovdqa %1, %%ymm5\n\t" insn " %%" reg ", %0" : "=m"(*(char(*)[32])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("vmovntps", "ymm5", 0);
    STORE("vmovntpd", "ymm5", 1);
    STORE("vmovntdq", "ymm5", 2);
    STORE("vmovntdq", "xmm5", 3);
    __asm__ volatile("vzeroupper");
    PM_SFENCE();
    for (int i = 0; i < 4; i++)
        pm_print("nt", pm + i * LINE, 32);
    return 0;
}
