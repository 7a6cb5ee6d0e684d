// SSE and MMX stores, aligned, unaligned and partial.
#include "../pm.h"

static const unsigned char pattern[16] __attribute__((aligned(16))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
#define STORE(insn, n) __asm__ volatile("movdqa %1, %%xmm5\n\t" insn " %%xmm5, %0" : "=m"(*(char(*)[16])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("movaps", 0); //~ missing-flush
    STORE("movups", 1); //~ missing-flush
    STORE("movapd", 2); //~ missing-flush
    STORE("movupd", 3); //~ missing-flush
    STORE("movdqa", 4); //~ missing-flush
    STORE("movdqu", 5); //~ missing-flush
    STORE("movss", 6); //~ missing-flush
    STORE("movsd", 7); //~ missing-flush
    STORE("movlps", 8); //~ missing-flush
    STORE("movhps", 9); //~ missing-flush
    STORE("movlpd", 10); //~ missing-flush
    STORE("movhpd", 11); //~ missing-flush
    STORE("movq", 12); //~ missing-flush
    STORE("movd", 13); //~ missing-flush
    __asm__ volatile("movdqa %1, %%xmm5\n\tmovdqu %%xmm5, 7(%0)" : : "r"(pm + 14 * LINE), "m"(pattern) : "xmm5", "memory"); //~ missing-flush
    __asm__ volatile("movq %1, %%mm3\n\tmovq %%mm3, %0\n\temms" : "=m"(pm[15 * LINE]) : "m"(pattern) : "mm3", "memory"); //~ missing-flush
    __asm__ volatile("movq %1, %%mm3\n\tmovd %%mm3, %0\n\temms" : "=m"(pm[16 * LINE]) : "m"(pattern) : "mm3", "memory"); //~ missing-flush
    __asm__ volatile("movdqa %1, %%xmm13\n\tmovaps %%xmm13, %0" : "=m"(*(char(*)[16])(pm + 17 * LINE)) : "m"(pattern) : "xmm13"); //~ missing-flush
    for (int i = 0; i < 18; i++)
        pm_print("sse", pm + i * LINE, 24);
    return 0;
}
