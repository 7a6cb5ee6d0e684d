// Conversions that store their result.
// needs: f16c
#include "../pm.h"

static const float floats[4] __attribute__((aligned(16))) = {1.0f, -2.5f, 1000.0f, 0.1f};

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    __asm__ volatile("movaps %1, %%xmm5\n\tvcvtps2ph $0, %%xmm5, %0" : "=m"(*(char(*)[8])pm) : "m"(floats) : "xmm5");
    __asm__ volatile("vbroadcastf128 %1, %%ymm5\n\tvcvtps2ph $0, %%ymm5, %0\n\tvzeroupper" : "=m"(*(char(*)[16])(pm + LINE)) : "m"(floats) : "xmm5");
    __asm__ volatile("flds %1\n\tfistl %0\n\tfstp %%st(0)" : "=m"(pm[2 * LINE]) : "m"(floats[2]) : "memory");
    __asm__ volatile("flds %1\n\tfistps %0" : "=m"(pm[3 * LINE]) : "m"(floats[1]) : "memory");
    __asm__ volatile("flds %1\n\tfistpll %0" : "=m"(pm[4 * LINE]) : "m"(floats[2]) : "memory");
    __asm__ volatile("flds %1\n\tfisttpl %0" : "=m"(pm[5 * LINE]) : "m"(floats[1]) : "memory");
    __asm__ volatile("flds %1\n\tfbstp %0" : "=m"(pm[6 * LINE]) : "m"(floats[2]) : "memory");
    pm_persist(pm, 7 * LINE);
    for (int i = 0; i < 7; i++)
        pm_print("convert", pm + i * LINE, 17);
    return 0;
}
