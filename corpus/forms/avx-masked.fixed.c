// Masked AVX stores write only the elements that the mask selects.
// needs: avx2
#include "../pm.h"

static uint32_t pattern[8] __attribute__((aligned(32))) = {1, 2, 3, 4, 5, 6, 7, 8};
static uint32_t mask[8] __attribute__((aligned(32))) = {0x80000000, 0, 0x80000000, 0xffffffff, 0, 0x7fffffff, 0, 0xffffffff};
static uint32_t head[4] __attribute__((aligned(32))) = {0x80000000, 0x80000000, 0, 0};

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 2 * PAGE);
#define STORE(insn, r, at) __asm__ volatile("vmovdqa %1, %%ymm5\n\tvmovdqa %2, %%ymm6\n\t" insn " %%" r "5, %%" r "6, %0" : "=m"(*(char(*)[32])(at)) : "m"(pattern), "m"(mask) : "xmm5", "xmm6", "memory")
    STORE("vmaskmovps", "ymm", pm);
    STORE("vmaskmovpd", "ymm", pm + LINE);
    STORE("vmaskmovps", "xmm", pm + 2 * LINE);
    STORE("vpmaskmovd", "ymm", pm + 3 * LINE);
    STORE("vpmaskmovq", "ymm", pm + 4 * LINE);
    // The last element that the mask selects ends with the mapping: what lies beyond is not touched.
    __asm__ volatile("vmovdqa %0, %%xmm5\n\tvmovdqa %1, %%xmm6\n\tvpmaskmovd %%xmm5, %%xmm6, (%2)" : : "m"(pattern), "m"(head), "r"(pm + 2 * PAGE - 8) : "xmm5", "xmm6", "memory");
    __asm__ volatile("vzeroupper");
    pm_flush(pm, 5 * LINE);
    pm_persist(pm + 2 * PAGE - 8, 8);
    for (int i = 0; i < 5; i++)
        pm_print("masked", pm + i * LINE, 32);
    pm_print("end", pm + 2 * PAGE - 16, 16);
    return 0;
}
