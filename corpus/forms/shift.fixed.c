// Shifts and rotates of memory, by one, by a constant and by cl.
#include "../pm.h"

static unsigned checksum;

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int line = 0, cf, zf;
    for (int i = 0; i < 16; i++)
        memset(pm + i * LINE, 0x91 + i, 8);
    pm_persist(pm, 16 * LINE);
#define SHIFT(insn) __asm__ volatile(insn : "+m"(*(volatile uint64_t *)(pm + line * LINE)), "=@ccc"(cf), "=@ccz"(zf) : "c"(5), "r"(0x123456789abcdef0)); checksum = checksum * 4 + (unsigned)(cf | zf << 1); line++
    SHIFT("shlq %0\n\tcmpb $0, %0");
    SHIFT("shrl $3, %0");
    SHIFT("sarw %%cl, %0");
    SHIFT("testb $1, %0\n\trolb $3, %0");
    SHIFT("testb $1, %0\n\trorq %%cl, %0");
    SHIFT("cmpb $0xff, %0\n\trcll %0");
    SHIFT("cmpb $0xff, %0\n\trcrq $9, %0");
    SHIFT("shldq $12, %4, %0");
    SHIFT("shrdl %%cl, %k4, %0");
    pm_persist(pm, 9 * LINE);
    for (int i = 0; i < 9; i++)
        pm_print("shift", pm + i * LINE, 8);
    printf("flags %x\n", checksum);
    return 0;
}
