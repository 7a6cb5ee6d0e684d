// Stores through every way to say an address.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 4 * PAGE);
    uint64_t value = 0x1111222233334444;
    char *base = pm + PAGE;
    __asm__ volatile("movq %0, (%1)" : : "r"(value), "r"(base) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, 64(%1)" : : "r"(value), "r"(base) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, -64(%1)" : : "r"(value), "r"(base) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, 0x1000(%1)" : : "r"(value), "r"(base) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, (%1,%2)" : : "r"(value), "r"(base), "r"(128L) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, (%1,%2,8)" : : "r"(value), "r"(base), "r"(-16L) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, 128(%1,%2,4)" : : "r"(value), "r"(base), "r"(16L) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, 256(,%1,1)" : : "r"(value), "r"(base) : "memory"); //~ missing-flush
    __asm__ volatile("mov %1, %%r12\n\tmovq %0, 320(%%r12)" : : "r"(value), "r"(base) : "r12", "memory"); //~ missing-flush
    __asm__ volatile("mov %1, %%r13\n\tmovq %0, 384(%%r13)" : : "r"(value), "r"(base) : "r13", "memory"); //~ missing-flush
    __asm__ volatile("mov %1, %%r13\n\tmovq %0, 384(%%r13,%2,2)" : : "r"(value), "r"(base), "r"(32L) : "r13", "memory"); //~ missing-flush
    __asm__ volatile("movq %0, %%gs:512(%1)" : : "r"(value), "r"(base) : "memory"); //~ missing-flush
    __asm__ volatile("movq %1, 576(%1)" : : "r"(value), "r"(base) : "memory");
    __asm__ volatile("movq $4, 576(%0)" : : "r"(base) : "memory"); //~ missing-flush
    for (int i = -2; i <= 9; i++)
        pm_print("at", base + i * LINE, 8);
    pm_print("at", base + PAGE, 8);
    return 0;
}
