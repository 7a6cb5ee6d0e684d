// Copies of several sizes by libpmem, temporal and not; a plain store beside them is forgotten.
// link: -lpmem
#include "../pm.h"
#include <libpmem.h>

int main(int argc, char **argv) {
    size_t len;
    char *pm = pmem_map_file(argv[argc - 1], 64 * PAGE, PMEM_FILE_CREATE, 0600, &len, NULL);
    static char text[40000];
    memset(text, 't', sizeof text);
    size_t sizes[] = {1, 8, 17, 64, 100, 255, 256, 1000, 4096, 40000};
    char *to = pm;
    for (int i = 0; i < 10; i++) {
        pmem_memcpy_persist(to, text, sizes[i]);
        to += (sizes[i] + 127) / 64 * 64;
    }
    pmem_memmove_persist(pm + 32 * PAGE + 7, pm + 16 * PAGE + 1, 777);
    pmem_memset_persist(pm + 40 * PAGE + 3, 's', 333);
    pm[60 * PAGE] = 'f'; //~ missing-flush
    printf("%ld %d\n", (long)(to - pm), memcmp(pm + PAGE / 2 + 1, text, 64));
    pmem_unmap(pm, len);
    return 0;
}
