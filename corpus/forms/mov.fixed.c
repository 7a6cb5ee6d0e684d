// mov of every width, from registers and immediates.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    uint64_t value = 0x8877665544332211;
#define AT(n) "m"(*(volatile uint64_t *)(pm + (n) * LINE))
    __asm__ volatile("movb %b1, %0" : "=" AT(0) : "q"(value));
    __asm__ volatile("movw %w1, %0" : "=" AT(1) : "r"(value));
    __asm__ volatile("movl %k1, %0" : "=" AT(2) : "r"(value));
    __asm__ volatile("movq %1, %0" : "=" AT(3) : "r"(value));
    __asm__ volatile("movb $0x5a, %0" : "=" AT(4));
    __asm__ volatile("movw $0x5a5b, %0" : "=" AT(5));
    __asm__ volatile("movl $0x5a5b5c5d, %0" : "=" AT(6));
    __asm__ volatile("movq $-2, %0" : "=" AT(7));
    __asm__ volatile("movb %%ah, (%0)" : : "D"(pm + 8 * LINE), "a"(value) : "memory");
    __asm__ volatile("mov %1, %%r9\n\tmovb %%r9b, %0" : "=" AT(9) : "r"(value) : "r9");
    __asm__ volatile("movbe %1, %0" : "=" AT(10) : "r"(value));
    __asm__ volatile("movw %%ds, %0" : "=" AT(11));
    __asm__ volatile("movnti %k1, %0" : "=" AT(12) : "r"(value));
    __asm__ volatile("movnti %1, %0" : "=" AT(13) : "r"(value));
    __asm__ volatile("mov %1, %%r15\n\tmov %%r15, %0" : "=" AT(14) : "r"(value) : "r15");
    pm_flush(pm, 12 * LINE);
    pm_flush(pm + 14 * LINE, 8);
    PM_SFENCE();
    for (int i = 0; i < 15; i++)
        pm_print("mov", pm + i * LINE, 8);
    return 0;
}
