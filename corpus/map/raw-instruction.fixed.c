// The program maps its file with system calls of its own, and the kernel refuses some of them.
#include "../pm.h"
#include <errno.h>
#include <sys/syscall.h>

int main(int argc, char **argv) {
    long fd = pm_raw(SYS_open, (long)argv[argc - 1], O_RDWR | O_CREAT, 0600, 0, 0, 0);
    pm_raw(SYS_ftruncate, fd, 2 * PAGE, 0, 0, 0, 0);
    errno = 77;
    long both = PROT_READ | PROT_WRITE;
    volatile char *pm = (volatile char *)pm_raw(SYS_mmap, 0, 2 * PAGE, both, MAP_SHARED, fd, 0);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    printf("%ld", pm_raw(SYS_munmap, (long)pm + 1, PAGE, 0, 0, 0, 0));
    printf(" %ld", pm_raw(SYS_munmap, (long)pm, 0, 0, 0, 0, 0));
    printf(" %ld", pm_raw(SYS_mmap, (long)pm, PAGE, both, MAP_SHARED | MAP_FIXED, fd, 123));
    printf(" %ld", pm_raw(SYS_mmap, (long)pm, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0));
    printf(" %ld", pm_raw(SYS_mmap, 0, 1l << 50, both, MAP_SHARED, fd, 0));
    printf(" %ld", pm_raw(SYS_mprotect, (long)pm + 1, PAGE, both, 0, 0, 0));
    printf(" %ld", pm_raw(SYS_mremap, (long)pm + 1, PAGE, PAGE, 0, 0, 0));
    printf(" %ld", pm_raw(SYS_unlink, 1, 0, 0, 0, 0, 0));
    printf(" %d\n", errno);
    pm[64] = 2;
    pm_persist((void *)(pm + 64), 1);
    // Another part of the file takes the place of the second page.
    volatile char *second = (volatile char *)pm_raw(SYS_mmap, (long)pm + PAGE, PAGE, both, MAP_SHARED | MAP_FIXED, fd, 0);
    second[128] = 3;
    pm_persist((void *)(second + 128), 1);
    printf("%d %d %d\n", second == pm + PAGE, pm[128], second[64]);
    printf("%ld\n", pm_raw(SYS_munmap, (long)pm, 2 * PAGE, 0, 0, 0, 0));
    return 0;
}
