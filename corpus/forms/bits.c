// bts, btr, btc by constant and by register; a register reaches bits far beyond the operand.
#include "../pm.h"

static unsigned carries;

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    char *at = pm + PAGE / 2;
    int cf;
#define BIT(insn, n, index) __asm__ volatile(insn : "+m"(*(volatile uint64_t *)(at + (n) * LINE)), "=@ccc"(cf) : "r"((int64_t)(index)) : "memory"); carries = carries * 2 + (unsigned)cf
    BIT("btsw $3, %0", 0, 0); //~ missing-flush
    BIT("btsl $31, %0", 1, 0); //~ missing-flush
    BIT("btcq $40, %0", 2, 0); //~ missing-flush
    BIT("btsq %2, %0", 3, 17); //~ missing-flush
    BIT("btsq %2, %0", 3, 64 * 8 + 3); //~ missing-flush
    BIT("btsl %k2, %0", 3, -64 * 8 * 4 + 9); //~ missing-flush
    BIT("btcw %w2, %0", 5, 1000); //~ missing-flush
    BIT("btrq $40, %0", 7, 0); //~ missing-flush
    BIT("lock btsq %2, %0", 8, 70); //~ missing-flush
    BIT("lock btrl %k2, %0", 9, 3); //~ missing-flush
    BIT("btq %2, %0", 8, 70);
    for (int i = -1; i < 9; i++)
        pm_print("bits", at + i * LINE, 64);
    printf("carries %x\n", carries);
    return 0;
}
