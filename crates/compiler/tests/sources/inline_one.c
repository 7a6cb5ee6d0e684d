// With inline_two.c: inline functions without an external definition, which plain clang links with optimisation.
#include "inline.h"

int main(int argc, char **argv) {
    volatile int one = 1;
    int fd = open(argc > 1 ? argv[1] : "pool", O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096))
        return 1;
    uint64_t *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pm[1] = (uint64_t)scale((int)pm[0]);
    printf("%d %d %d %d %d\n", scale(one), other_scale(one), apply(twice, one), counted(one), address() == counted);
    fflush(stdout);
    return 0;
}
