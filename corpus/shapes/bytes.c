// Flushes spelt as prefixed older instructions, for assemblers that do not know the new ones.
// build: gcc clang
#include "../pm.h"

static inline void clwb(volatile void *at) {
    __asm__ volatile(".byte 0x66; xsaveopt %0" : "+m"(*(volatile char *)at));
}

static inline void clflushopt(volatile void *at) {
    __asm__ volatile(".byte 0x66; clflush %0" : "+m"(*(volatile char *)at));
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    clwb(&pm[0]);
    clwb(&pm[1]); //~ redundant-flush x1
    pm[8] = 2;
    clflushopt(&pm[8]);
    PM_SFENCE();
    pm[16] = 3; //~ missing-fence
    clwb(&pm[16]);
    pm[24] = 4; //~ missing-fence
    clflushopt(&pm[24]);
    printf("%lu\n", (unsigned long)(pm[0] + pm[8] + pm[16] + pm[24]));
    return 0;
}
