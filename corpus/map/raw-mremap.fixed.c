// A mapping grows, moves and becomes read-only by system calls of the program's own.
#include "../pm.h"
#include <sys/syscall.h>

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], 8 * PAGE);
    pm_raw(SYS_munmap, (long)pm + PAGE, 7 * PAGE, 0, 0, 0, 0);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    volatile char *grown = (volatile char *)pm_raw(SYS_mremap, (long)pm, PAGE, 8 * PAGE, MREMAP_MAYMOVE, 0, 0);
    grown[7 * PAGE] = 2;
    pm_persist((void *)(grown + 7 * PAGE), 1);
    char *elsewhere = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char *moved = (volatile char *)pm_raw(SYS_mremap, (long)grown, 8 * PAGE, 8 * PAGE,
                                                   MREMAP_MAYMOVE | MREMAP_FIXED, (long)elsewhere, 0);
    moved[PAGE] = 3;
    pm_persist((void *)(moved + PAGE), 1);
    printf("%d %d\n", moved == elsewhere, moved[0] + moved[PAGE] + moved[7 * PAGE]);
    pm_raw(SYS_mprotect, (long)moved, 8 * PAGE, PROT_READ, 0, 0, 0);
    pm_raw(SYS_mprotect, (long)moved, 4 * PAGE, PROT_READ | PROT_WRITE, 0, 0, 0);
    moved[2 * PAGE] = 4;
    pm_persist((void *)(moved + 2 * PAGE), 1);
    printf("%d\n", moved[2 * PAGE]);
    return 0;
}
