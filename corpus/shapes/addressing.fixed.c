// Flushes through every way to say an address.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    char *base = pm + PAGE;
    for (int i = -2; i < 6; i++)
        ((volatile char *)base)[i * LINE] = (char)(i + 3);
    __asm__ volatile("clwb (%0)" : : "r"(base) : "memory");
    __asm__ volatile("clwb 64(%0)" : : "r"(base) : "memory");
    __asm__ volatile("clwb -64(%0)" : : "r"(base) : "memory");
    __asm__ volatile("clflushopt -128(%0,%1,4)" : : "r"(base), "r"(64L) : "memory");
    __asm__ volatile("clwb (,%0,2)" : : "r"((uintptr_t)(base + 192) / 2) : "memory");
    __asm__ volatile("mov %0, %%r12\n\tclwb 0x110(%%r12)" : : "r"(base) : "r12", "memory");
    __asm__ volatile("clwb %%gs:-120(%0)\n\tclwb 256(%0,%1)" : : "r"(base), "r"(64L) : "memory");
    PM_SFENCE();
    printf("%d\n", base[0] + base[5 * LINE]);
    return 0;
}
