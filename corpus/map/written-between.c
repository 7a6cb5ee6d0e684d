// Written by stdio between two mappings: the trace goes on from what the file holds then.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    munmap((void *)pm, PAGE);
    FILE *file = fopen(argv[argc - 1], "r+");
    fputs("header", file);
    fclose(file);
    pm = pm_map(argv[argc - 1], PAGE);
    pm[LINE] = 2; //~ missing-flush
    printf("%.6s %d\n", (char *)pm, pm[LINE]);
    return 0;
}
