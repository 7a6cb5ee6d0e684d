// Elements of vectors, stored by the extract instructions.
// needs: avx2
#include "../pm.h"

static const unsigned char pattern[16] __attribute__((aligned(16))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
#define STORE(insn, n) __asm__ volatile("movdqa %1, %%xmm5\n\t" insn ", %%xmm5, %0" : "=m"(*(char(*)[8])(pm + (n) * LINE)) : "m"(pattern) : "xmm5")
    STORE("pextrb $3", 0);
    STORE("pextrw $2", 1);
    STORE("pextrd $1", 2);
    STORE("pextrq $1", 3);
    STORE("extractps $3", 4);
    STORE("vpextrb $15", 5);
    STORE("vpextrw $7", 6);
    STORE("vpextrd $3", 7);
    STORE("vpextrq $0", 8);
    STORE("vextractps $1", 9);
    pm_persist(pm, 10 * LINE);
    for (int i = 0; i < 10; i++)
        pm_print("extract", pm + i * LINE, 9);
    return 0;
}
