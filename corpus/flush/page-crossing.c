// Stores that cross a page, as unaligned as can be.
#include "../pm.h"

static const char text[16] = "sixteen letters";

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 4 * PAGE);
    __asm__ volatile("movdqu %0, %%xmm1\n\tmovdqu %%xmm1, -5(%1)" : : "m"(text), "r"(pm + PAGE) : "xmm1", "memory"); //~ missing-flush
    __asm__ volatile("movdqu %0, %%xmm1\n\tmovups %%xmm1, -15(%1)" : : "m"(text), "r"(pm + 2 * PAGE) : "xmm1", "memory"); //~ missing-flush
    __asm__ volatile("movq %0, -1(%1)" : : "r"(0x1122334455667788), "r"(pm + 3 * PAGE) : "memory"); //~ missing-flush
    pm_persist(pm + 2 * PAGE - 15, 15);
    pm_persist(pm + 3 * PAGE, 7);
    pm_print("bytes", pm + PAGE - 5, 16);
    pm_print("bytes", pm + 2 * PAGE - 15, 16);
    pm_print("bytes", pm + 3 * PAGE - 1, 8);
    return 0;
}
