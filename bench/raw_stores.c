/* Plain 8-byte stores to PM, one line flushed and fenced after every eight. */
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS (1 << 16)

int main(int argc, char **argv) {
    long rounds = argc > 2 ? atol(argv[2]) : 1;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, WORDS * 8) != 0)
        return 3;
    volatile uint64_t *pm = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        return 3;
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < WORDS; i += 8) {
            for (int k = 0; k < 8; k++)
                pm[i + k] = (uint64_t)(round * WORDS + i + k + 1);
            _mm_clwb((void *)&pm[i]);
            _mm_sfence();
        }
    munmap((void *)pm, WORDS * 8);
    return 0;
}
