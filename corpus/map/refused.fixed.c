// Calls that the kernel refuses leave the mapping as it is, and stores to it go on.
#include "../pm.h"
#include <errno.h>

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    int fd = open(argv[argc - 1], O_RDWR);
    int refused = munmap((char *)pm + 1, PAGE) != 0;
    refused += munmap((void *)pm, 0) != 0;
    refused += mmap((void *)pm, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 123) == MAP_FAILED;
    refused += mmap((void *)pm, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED;
    refused += mmap(NULL, 1ul << 50, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED;
    pm[PAGE] = 1;
    pm_persist((void *)&pm[PAGE], 1);
    char *again = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
    printf("%d refused, %d\n", refused, again[0]);
    return 0;
}
