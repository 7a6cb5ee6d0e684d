// A system call made by the program's own instruction, past libc.
#include "../pm.h"
#include <sys/syscall.h>

static long raw_read(int fd, void *buffer, size_t len) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_read), "D"((long)fd), "S"(buffer), "d"(len) : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], "raw system call", 15) != 15)
        pm_die("pipe");
    long got = raw_read(fds[0], pm, 7);
    pm_persist(pm, (size_t)got);
    long more = raw_read(fds[0], pm + 64, 64);
    pm_persist(pm + 64, (size_t)more);
    printf("%ld %ld %.7s%.8s\n", got, more, pm, pm + 64);
    return 0;
}
