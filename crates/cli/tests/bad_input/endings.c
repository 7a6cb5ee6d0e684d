/* Stores to PM without a flush, then ends in the way that is asked for. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 1 << 20) != 0)
        return 3;
    volatile uint64_t *pm = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        return 3;
    pm[0] = 42; /* never flushed */
    puts("stored");
    fflush(stdout);
    if (strcmp(argv[2], "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(argv[2], "segfault") == 0)
        *(volatile int *)8 = 1;
    if (strcmp(argv[2], "abort") == 0)
        raise(SIGABRT);
    if (strcmp(argv[2], "forever") == 0) {
        puts("waiting"); /* whoever reads this knows that the first line is in the trace */
        fflush(stdout);
        for (;;)
            pause();
    }
    if (strcmp(argv[2], "much") == 0) {
        uint64_t state = 1;
        for (long i = 0; i < 400000; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            pm[(state >> 33) % (1 << 17)] = state;
        }
        puts("done");
    }
    return 7;
}
