// x87 stores, which pop as they store, and its control words.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    double left = 0;
    __asm__ volatile("fldpi\n\tfstps %0" : "=m"(pm[0]) : : "memory"); //~ missing-flush
    __asm__ volatile("fldpi\n\tfstpl %0" : "=m"(pm[LINE]) : : "memory"); //~ missing-flush
    __asm__ volatile("fldpi\n\tfstpt %0" : "=m"(pm[2 * LINE]) : : "memory"); //~ missing-flush
    __asm__ volatile("fld1\n\tfldpi\n\tfstpl %0\n\tfstpl %1" : "=m"(pm[3 * LINE]), "=m"(left) : : "memory"); //~ missing-flush
    __asm__ volatile("fldl2e\n\tfsts %0\n\tfstp %%st(0)" : "=m"(pm[4 * LINE]) : : "memory"); //~ missing-flush
    __asm__ volatile("fldl2e\n\tfstl %0\n\tfstp %%st(0)" : "=m"(pm[5 * LINE]) : : "memory"); //~ missing-flush
    __asm__ volatile("fnstcw %0" : "=m"(pm[6 * LINE]) : : "memory"); //~ missing-flush
    __asm__ volatile("stmxcsr %0" : "=m"(pm[7 * LINE]) : : "memory"); //~ missing-flush
    __asm__ volatile("fnstsw %0" : "=m"(pm[8 * LINE]) : : "memory"); //~ missing-flush
    for (int i = 0; i < 9; i++)
        pm_print("x87", pm + i * LINE, 11);
    printf("left %.1f\n", left);
    return 0;
}
