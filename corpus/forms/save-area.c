// Whole register files saved into PM by one instruction.
// file-differs: holds what happened to be in the vector registers
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    uint32_t low = 3, high = 0;
    memset(pm, 0, 2 * PAGE); //~ missing-flush
    __asm__ volatile("fxsave64 (%0)" : : "r"(pm) : "memory"); //~ missing-flush
    __asm__ volatile("xsave64 (%0)" : : "r"(pm + PAGE), "a"(low), "d"(high) : "memory"); //~ missing-flush
    pm_print("fxsave", pm, 2);
    pm_print("xsave", pm + PAGE, 2);
    return 0;
}
