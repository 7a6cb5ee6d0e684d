// Read-modify-write of memory in every width, with the flags that it leaves.
#include "../pm.h"

static unsigned checksum;

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int line = 0, cf, zf, sf, of;
    for (int i = 0; i < 32; i++)
        memset(pm + i * LINE, 0x81 + i, 8);
    pm_persist(pm, 32 * LINE);
#define RMW(insn) __asm__ volatile(insn : "+m"(*(volatile uint64_t *)(pm + line * LINE)), "=@ccc"(cf), "=@ccz"(zf), "=@ccs"(sf), "=@cco"(of) : "r"(0x7f7f7f7f80808081)); checksum = checksum * 16 + (unsigned)(cf | zf << 1 | sf << 2 | of << 3); line++
    RMW("addb $0x7f, %0");
    RMW("addw %w5, %0");
    RMW("addl %k5, %0");
    RMW("addq %5, %0");
    RMW("subb %b5, %0");
    RMW("subq $1, %0");
    RMW("andl $0x0f0f0f0f, %0");
    RMW("orw $0x1234, %0");
    RMW("xorq %5, %0");
    RMW("stc\n\tadcq $0, %0");
    RMW("stc\n\tsbbl %k5, %0");
    RMW("clc\n\tincb %0");
    RMW("stc\n\tincl %0");
    RMW("stc\n\tdecq %0");
    RMW("negw %0");
    RMW("stc\n\tnotq %0\n\tcmpq $0, %0");
    pm_persist(pm, 16 * LINE);
    for (int i = 0; i < 16; i++)
        pm_print("rmw", pm + i * LINE, 8);
    printf("flags %08x\n", checksum);
    return 0;
}
