// Non-temporal SSE and MMX stores, masked ones included.
#include "../pm.h"

static const unsigned char pattern[16] __attribute__((aligned(16))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const unsigned char mask[16] __attribute__((aligned(16))) = {0x80, 0, 0xff, 0, 0x80, 0x80, 0, 0x7f, 0, 0x80};

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
#define STORE(insn, n) __asm__ volatile("movdqa %1, %%xmm5\n\t" insn " %%xmm5, %0" : "=m"(*(char(*)[16])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("movntps", 0); //~ missing-fence
    STORE("movntpd", 1); //~ missing-fence
    STORE("movntdq", 2); //~ missing-fence
    __asm__ volatile("movq %1, %%mm3\n\tmovntq %%mm3, %0\n\temms" : "=m"(pm[3 * LINE]) : "m"(pattern) : "mm3", "memory"); //~ missing-fence
    __asm__ volatile("movdqa %1, %%xmm1\n\tmovdqa %2, %%xmm2\n\tmaskmovdqu %%xmm2, %%xmm1" : : "D"(pm + 4 * LINE), "m"(pattern), "m"(mask) : "xmm1", "xmm2", "memory"); //~ missing-fence
    __asm__ volatile("movq %1, %%mm1\n\tmovq %2, %%mm2\n\tmaskmovq %%mm2, %%mm1\n\temms" : : "D"(pm + 5 * LINE), "m"(pattern), "m"(mask) : "mm1", "mm2", "memory"); //~ missing-fence
    for (int i = 0; i < 6; i++)
        pm_print("nt", pm + i * LINE, 16);
    return 0;
}
