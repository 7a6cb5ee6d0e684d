// pmem_flush where pmem_persist was meant.
// build: gcc clang
// link: -lpmem
#include "../pm.h"
#include <libpmem.h>

int main(int argc, char **argv) {
    size_t len;
    uint64_t *pm = pmem_map_file(argv[argc - 1], PAGE, PMEM_FILE_CREATE, 0600, &len, NULL);
    pm[0] = 1;
    pmem_persist(&pm[0], 8);
    pm[8] = 2; //~ missing-fence
    pmem_flush(&pm[8], 8);
    printf("%lu %lu\n", pm[0], pm[8]);
    pmem_unmap(pm, len);
    return 0;
}
