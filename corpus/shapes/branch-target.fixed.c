// A flush at which a loop's jump lands, and which a jump passes over.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 4; i++)
        ((volatile char *)pm)[i * LINE] = 1;
    char *at = pm;
    long left = 4;
    __asm__ volatile("jmp 1f\n2:\tadd $64, %0\n1:\tclwb (%0)\n\tdec %1\n\tjnz 2b" : "+r"(at), "+r"(left) : : "memory");
    __asm__ volatile("cmpl $1, %0\n\tjl 1f\n\tsfence\n1:" : : "r"(argc) : "memory");
    printf("%ld\n", (long)(at - pm));
    return 0;
}
