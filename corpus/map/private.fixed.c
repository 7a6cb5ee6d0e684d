// A private mapping of the file is ordinary memory.
// crashproof: --allow-no-stores
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    int fd = open(argv[argc - 1], O_RDWR);
    volatile char *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    copy[0] = 1;
    copy[64] = 2;
    copy[128] = 3;
    printf("%d %d\n", copy[0] + copy[64], pm[0]);
    return 0;
}
