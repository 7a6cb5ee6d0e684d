// Locked read-modify-writes: their store needs a flush like any other.
#include "../pm.h"

static unsigned checksum;

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int line = 0, cf, zf;
    for (int i = 0; i < 16; i++)
        memset(pm + i * LINE, 0xa1 + i, 8);
    pm_persist(pm, 16 * LINE);
#define LOCKED(insn) __asm__ volatile("lock " insn : "+m"(*(volatile uint64_t *)(pm + line * LINE)), "=@ccc"(cf), "=@ccz"(zf) : "r"(0x7f7f7f7f80808081)); checksum = checksum * 4 + (unsigned)(cf | zf << 1); line++
    LOCKED("addb $0x60, %0"); //~ missing-flush
    LOCKED("addq %3, %0"); //~ missing-flush
    LOCKED("subl %k3, %0"); //~ missing-flush
    LOCKED("andw $0x0ff0, %0"); //~ missing-flush
    LOCKED("orq %3, %0"); //~ missing-flush
    LOCKED("xorl $-1, %0"); //~ missing-flush
    LOCKED("incq %0\n\tcmpb $0, %0"); //~ missing-flush
    LOCKED("decl %0\n\tcmpb $0, %0"); //~ missing-flush
    LOCKED("negq %0"); //~ missing-flush
    LOCKED("notb %0\n\tcmpb $0, %0"); //~ missing-flush
    LOCKED("btsl $5, %0\n\tcmpb $0, %0"); //~ missing-flush
    LOCKED("btrq $63, %0\n\tcmpb $0, %0"); //~ missing-flush
    for (int i = 0; i < 12; i++)
        pm_print("locked", pm + i * LINE, 8);
    printf("flags %x\n", checksum);
    return 0;
}
