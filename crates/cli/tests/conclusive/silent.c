/* Stores to PM and makes it durable, then ends in the way that is asked for. */
#include <fcntl.h>
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 3;
    volatile uint64_t *pm = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        return 3;
    pm[0] = 42;
    _mm_clflush((const void *)pm);
    _mm_sfence();
    if (strcmp(argv[2], "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(argv[2], "terminate") == 0)
        kill(getpid(), SIGTERM);
    if (strcmp(argv[2], "segfault") == 0)
        *(volatile int *)8 = 1;
    if (strcmp(argv[2], "forever") == 0) {
        puts("waiting");
        fflush(stdout);
        for (;;)
            pause();
    }
    return strcmp(argv[2], "well") == 0 ? 0 : 7;
}
