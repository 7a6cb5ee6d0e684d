// Stores to a file, flushes it if it is told to, and removes it, as tests do with their pools.
#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int fd = open("pool", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 3;
    volatile long *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        return 4;
    pm[0] = 1;
    if (argc > 1)
        _mm_clflush((void *)pm);
    return unlink("pool");
}
