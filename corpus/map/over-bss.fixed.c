// The file is mapped over a global array, so stores are relative to the instruction pointer, and system calls write there.
#include "../pm.h"

static char arena[2 * PAGE] __attribute__((aligned(PAGE)));

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    int fds[2];
    if (ftruncate(fd, sizeof arena) != 0)
        pm_die("ftruncate");
    if (mmap(arena, sizeof arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != arena)
        pm_die("mmap");
    if (pipe(fds) != 0 || write(fds[1], "abc", 3) != 3)
        pm_die("pipe");
    __asm__ volatile("movl $5, %0" : "=m"(arena[0]) : : "memory");
    __asm__ volatile("lock incq %0" : "+m"(*(uint64_t *)(arena + 64)) : : "memory");
    ssize_t got = read(fds[0], arena + PAGE, 3);
    pm_flush(arena, 128);
    pm_persist(arena + PAGE, (size_t)got);
    printf("%d %d %zd %.3s\n", arena[0], arena[64], got, arena + PAGE);
    return 0;
}
