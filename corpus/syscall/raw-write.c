// The program writes to its file and to its output by system calls of its own.
#include "../pm.h"
#include <sys/syscall.h>

// As pm_raw, in this file.
static long raw_pread(long fd, volatile char *to, long len, long offset) {
    register long r10 __asm__("r10") = offset;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_pread64), "D"(fd), "S"(to), "d"(len), "r"(r10) : "rcx", "r11", "memory"); //~ missing-flush
    return result;
}

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    long fd = pm_raw(SYS_open, (long)argv[argc - 1], O_RDWR, 0, 0, 0, 0);
    pm_raw(SYS_pwrite64, fd, (long)"file", 4, 64, 0, 0);
    pm_raw(SYS_lseek, fd, 128, SEEK_SET, 0, 0, 0);
    pm_raw(SYS_write, fd, (long)"more", 4, 0, 0, 0);
    raw_pread(fd, pm, 4, 64);
    char line[] = "said\n";
    pm_raw(SYS_write, 1, (long)line, sizeof line - 1, 0, 0, 0);
    printf("%.4s %.4s %.4s\n", pm, pm + 64, pm + 128);
    return 0;
}
