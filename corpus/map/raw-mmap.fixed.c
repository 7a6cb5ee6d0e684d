// The mapping is made by a bare system call.
#include "../pm.h"
#include <sys/syscall.h>

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, PAGE) != 0)
        pm_die("ftruncate");
    volatile char *pm = (volatile char *)syscall(SYS_mmap, NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    pm[64] = 2;
    pm_persist((void *)(pm + 64), 1);
    printf("%d\n", pm[0] + pm[64]);
    syscall(SYS_munmap, pm, PAGE);
    return 0;
}
