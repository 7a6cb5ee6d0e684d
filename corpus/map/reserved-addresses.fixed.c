// The program reserves 64 TB of addresses, as run-time libraries of languages do, before it maps its file.
#include "../pm.h"

int main(int argc, char **argv) {
    void *low = (void *)0x100000000000, *reserved;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    reserved = mmap(low, 64ul << 40, PROT_NONE, flags, -1, 0);
    volatile char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    pm[0] = 1;
    pm_persist((void *)pm, 1);
    FILE *text = fopen(argv[argc - 1], "r");
    printf("%d %zu\n", reserved == low, fread((void *)(pm + 64), 1, 4, text));
    pm_persist((void *)(pm + 64), 4);
    pm = mremap((void *)pm, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    pm[PAGE] = 2;
    pm_persist((void *)(pm + PAGE), 1);
    printf("%d %d\n", pm[0] + pm[64] + pm[PAGE], mprotect(reserved, 64ul << 40, PROT_NONE));
    return 0;
}
