// A sparse file of 64 gigabytes, stored to at both ends.
// file-differs: too large to compare byte by byte
#include "../pm.h"

int main(int argc, char **argv) {
    size_t size = 1ul << 36;
    volatile char *pm = pm_map(argv[argc - 1], size);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    pm[size - 1] = 2; //~ missing-flush
    printf("%d %d\n", pm[0], pm[size - 1]);
    return 0;
}
