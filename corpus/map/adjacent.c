// A store that begins in one file and ends in another, and one that begins in PM and ends in ordinary memory.
// crashproof: --pm *
#include "../pm.h"

int main(int argc, char **argv) {
    char second[4096];
    snprintf(second, sizeof second, "%s.second", argv[argc - 1]);
    int one = open(argv[argc - 1], O_RDWR | O_CREAT, 0600), two = open(second, O_RDWR | O_CREAT, 0600);
    if (ftruncate(one, PAGE) != 0 || ftruncate(two, PAGE) != 0)
        pm_die("ftruncate");
    char *at = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, one, 0);
    mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, two, 0);
    __asm__ volatile("movq %0, -4(%1)" : : "r"(0x1122334455667788), "r"(at + PAGE) : "memory"); //~ missing-flush
    __asm__ volatile("movq %0, -2(%1)" : : "r"(0x1122334455667788), "r"(at + 2 * PAGE) : "memory"); //~ missing-flush
    pm_print("files", at + PAGE - 4, 8);
    pm_print("memory", at + 2 * PAGE - 2, 8);
    unlink(second);
    return 0;
}
