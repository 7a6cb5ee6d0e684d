// Compare-exchange of 8 and 16 bytes in register pairs, met and not met.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    uint64_t low = 0, high = 0;
    int equal;
#define CAS(insn, n, l, h) __asm__ volatile(insn : "+m"(*(__int128 volatile *)&pm[n]), "+a"(low), "+d"(high), "=@ccz"(equal) : "b"((uint64_t)(l)), "c"((uint64_t)(h)) : "memory"); printf("%lx %lx %d\n", low, high, equal)
    CAS("lock cmpxchg16b %0", 0, 0x1111, 0x2222);
    CAS("cmpxchg16b %0", 8, 0x5555, 0x6666);
    CAS("lock cmpxchg8b %0", 16, 0x77, 0x88);
    CAS("cmpxchg8b %0", 24, 0x99, 0xaa);
    pm[32] = 5;
    CAS("lock cmpxchg16b %0", 32, 0x3333, 0x4444);
    pm[40] = 6;
    CAS("lock cmpxchg8b %0", 40, 0x3333, 0x4444);
    pm_persist((void *)pm, 6 * LINE);
    for (int i = 0; i < 6; i++)
        pm_print("pair", (void *)&pm[i * 8], 16);
    return 0;
}
