// qsort swaps elements in PM from inside libc.
#include "../pm.h"

static int by_value(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv) {
    int *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 16; i++)
        pm[i] = i * 37 % 16;
    pm_persist(pm, 16 * sizeof *pm);
    qsort(pm, 16, sizeof *pm, by_value);
    pm_persist(pm, 16 * sizeof *pm);
    for (int i = 0; i < 16; i++)
        printf("%d ", pm[i]);
    printf("\n");
    return 0;
}
