// Shared anonymous memory is no file and so no PM.
// crashproof: --allow-no-stores
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    volatile char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[0] = 1;
    shared[64] = 2;
    printf("%d %d\n", shared[0], pm[1]);
    return 0;
}
