// SSE and MMX stores, aligned, unaligned and partial.
#include "../pm.h"

static const unsigned char pattern[16] __attribute__((aligned(16))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
#define STORE(insn, n) __asm__ volatile("movdqa %1, %%xmm5\n\t" insn " %%xmm5, %0" : "=m"(*(char(*)[16])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("movaps", 0);
    STORE("movups", 1);
    STORE("movapd", 2);
    STORE("movupd", 3);
    STORE("movdqa", 4);
    STORE("movdqu", 5);
    STORE("movss", 6);
    STORE("movsd", 7);
    STORE("movlps", 8);
    STORE("movhps", 9);
    STORE("movlpd", 10);
    STORE("movhpd", 11);
    STORE("movq", 12);
    STORE("movd", 13);
    __asm__ volatile("movdqa %1, %%xmm5\n\tmovdqu %%xmm5, 7(%0)" : : "r"(pm + 14 * LINE), "m"(pattern) : "xmm5", "memory");
    __asm__ volatile("movq %1, %%mm3\n\tmovq %%mm3, %0\n\temms" : "=m"(pm[15 * LINE]) : "m"(pattern) : "mm3", "memory");
    __asm__ volatile("movq %1, %%mm3\n\tmovd %%mm3, %0\n\temms" : "=m"(pm[16 * LINE]) : "m"(pattern) : "mm3", "memory");
    __asm__ volatile("movdqa %1, %%xmm13\n\tmovaps %%xmm13, %0" : "=m"(*(char(*)[16])(pm + 17 * LINE)) : "m"(pattern) : "xmm13");
    pm_persist(pm, 18 * LINE);
    for (int i = 0; i < 18; i++)
        pm_print("sse", pm + i * LINE, 24);
    return 0;
}
