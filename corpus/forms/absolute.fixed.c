// PM at an address of the program's choice, below 4 GB, stored to by absolute and by 32-bit addresses.
// pie: no
#include "../pm.h"

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, PAGE) != 0)
        pm_die("ftruncate");
    char *pm = mmap((void *)0x20000000, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (pm == MAP_FAILED)
        pm_die("mmap");
    __asm__ volatile("movabs %0, 0x20000000" : : "a"(0x1234567890abcdef) : "memory");
    __asm__ volatile("movabs %0, 0x20000040" : : "a"((char)0x77) : "memory");
    __asm__ volatile("movl $0x55, 0x20000080" : : : "memory");
    __asm__ volatile("movl $0x66, (%k0)" : : "r"(pm + 192) : "memory");
    __asm__ volatile("addl $0x66, 64(%k0,%k1,4)" : : "r"(pm), "r"(48) : "memory");
    pm_persist(pm, 5 * LINE);
    printf("%p\n", (void *)pm);
    for (int i = 0; i < 5; i++)
        pm_print("at", pm + i * LINE, 8);
    return 0;
}
