// A copy within ordinary memory, large enough that libc streams and fences it, is no business of PM's.
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    size_t len = 96u << 20;
    char *from = malloc(len), *to = malloc(len);
    memset(from, 'v', len);
    PM_BARRIER();
    memcpy(to, from, len);
    *pm = (uint64_t)to[len - 1];
    pm_persist(pm, sizeof *pm);
    printf("%lu\n", *pm);
    return 0;
}
