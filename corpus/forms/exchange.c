// xchg, xadd and cmpxchg of every width, locked and not, with what they leave in registers.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 24; i++)
        memset(pm + i * LINE, 0x11 * (i % 15 + 1), 8);
    pm_persist(pm, 24 * LINE);
    int line = 0;
    uint64_t reg;
    uint64_t old;
    int equal;
#define SWAP(insn) reg = 0x0102030405060708; __asm__ volatile(insn : "+m"(*(volatile uint64_t *)(pm + line * LINE)), "+q"(reg)); line++; printf("%016lx\n", reg)
    SWAP("xchgb %b1, %0"); //~ missing-flush
    SWAP("xchgw %w1, %0"); //~ missing-flush
    SWAP("xchgl %k1, %0"); //~ missing-flush
    SWAP("xchgq %1, %0"); //~ missing-flush
    SWAP("xaddb %b1, %0"); //~ missing-flush
    SWAP("xaddl %k1, %0"); //~ missing-flush
    SWAP("lock xaddw %w1, %0"); //~ missing-flush
    SWAP("lock xaddq %1, %0"); //~ missing-flush
#define CAS(insn) old = *(volatile uint64_t *)(pm + line * LINE); reg = 0x0102030405060708; __asm__ volatile(insn : "+m"(*(volatile uint64_t *)(pm + line * LINE)), "+a"(old), "=@ccz"(equal) : "q"(reg)); line++; printf("%016lx %d\n", old, equal)
    CAS("cmpxchgb %b3, %0"); //~ missing-flush
    CAS("cmpxchgw %w3, %0"); //~ missing-flush
    CAS("cmpxchgl %k3, %0"); //~ missing-flush
    CAS("cmpxchgq %3, %0"); //~ missing-flush
    CAS("lock cmpxchgb %b3, %0"); //~ missing-flush
    CAS("lock cmpxchgw %w3, %0"); //~ missing-flush
    CAS("lock cmpxchgl %k3, %0"); //~ missing-flush
    CAS("lock cmpxchgq %3, %0"); //~ missing-flush
    CAS("cmpxchgq %3, %0\n\tsetz %%al\n\tcmpb $1, %%al"); //~ missing-flush
    for (int i = 0; i < 17; i++)
        pm_print("exchange", pm + i * LINE, 8);
    return 0;
}
