// The middle page is unmapped while a store to it is pending.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 3 * PAGE);
    volatile char *bytes = pm;
    for (int i = 0; i < 3; i++)
        bytes[i * PAGE] = (char)(i + 1); //~ missing-flush x1
    munmap(pm + PAGE, PAGE);
    PM_CLWB(pm);
    PM_CLWB(pm + 2 * PAGE);
    PM_SFENCE();
    printf("%d %d\n", bytes[0], bytes[2 * PAGE]);
    return 0;
}
