// The stack pointer lies in PM: push, call, pop to memory and enter store there.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    char *top = pm + 2048;
    static uint64_t word = 0x0a0b0c0d;
#define ON_STACK(at, body) __asm__ volatile("mov %%rsp, %%r12\n\tmov %0, %%rsp\n\t" body "\n\tmov %%r12, %%rsp" : : "r"(at), "r"(0x1122334455667788), "m"(word) : "r12", "r13", "memory", "cc")
    ON_STACK(top, "push %1");
    ON_STACK(top - LINE, "push $-5");
    ON_STACK(top - 2 * LINE, "pushw $0x1234");
    ON_STACK(top - 3 * LINE, "lea %2, %%r13\n\tpushq (%%r13)");
    ON_STACK(top - 4 * LINE, "push %1\n\tpush %1\n\tpop %%r13\n\taddq $1, (%%rsp)");
    ON_STACK(top - 5 * LINE, "call 1f\n\tjmp 2f\n1:\tret\n2:\tmovq $0, -8(%%rsp)");
    ON_STACK(top - 6 * LINE, "push %1\n\tpopq -16(%%rsp)\n\tmovq $7, 0(%%rsp)");
    ON_STACK(top - 7 * LINE, "xor %%r13d, %%r13d\n\tpushfq\n\tmovq $3, (%%rsp)");
    pm_persist(top - 8 * LINE, 8 * LINE);
    pm_print("stack", top - 8 * LINE, 8 * LINE);
    return 0;
}
