// MREMAP_DONTUNMAP leaves the old mapping where it was: the registered memory is at the new place, and the trace says that the old one
// is not recorded.
// incomplete: mremap left it mapped
#include "../pm.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

int main(void) {
    uint64_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        pm_die("mmap");
    PM_REGISTER(at, 64);
    at[0] = 1;
    at[100] = 2;
    uint64_t *moved = mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (moved == MAP_FAILED)
        pm_die("mremap");
    pm_persist(moved, 8);
    moved[1] = 3; //~ missing-flush
    at[0] = 4;
    at[600] = 5;
    printf("%lu %lu %lu %lu %lu %lu\n", at[0], at[100], at[600], moved[0], moved[1], moved[100]);
    return 0;
}
