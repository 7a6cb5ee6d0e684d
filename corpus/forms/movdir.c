// Direct stores: movdiri and movdir64b behave as non-temporal ones.
// needs: movdiri movdir64b
#include "../pm.h"

static unsigned char pattern[64] __attribute__((aligned(64)));

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 64; i++)
        pattern[i] = (unsigned char)(i + 1);
    __asm__ volatile("movdiri %0, (%1)" : : "r"(0x1122334455667788), "r"(pm) : "memory"); //~ missing-fence
    __asm__ volatile("movdiri %0, 64(%1)" : : "r"(0x11223344), "r"(pm) : "memory"); //~ missing-fence
    __asm__ volatile("movdir64b (%0), %1" : : "r"(pattern), "r"(pm + 128) : "memory"); //~ missing-fence
    for (int i = 0; i < 3; i++)
        pm_print("movdir", pm + i * LINE, 64);
    return 0;
}
