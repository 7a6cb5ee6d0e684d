// The library's flush finds a clean line: the finding is on the call, the library has no debug info.
// link: -lpmem
#include "../pm.h"
#include <libpmem.h>

int main(int argc, char **argv) {
    size_t len;
    uint64_t *pm = pmem_map_file(argv[argc - 1], PAGE, PMEM_FILE_CREATE, 0600, &len, NULL);
    pm[0] = 1;
    pmem_persist(pm, 8);
    pmem_persist(pm, 8); //~ redundant-flush //~? redundant-fence
    printf("%lu\n", pm[0]);
    pmem_unmap(pm, len);
    return 0;
}
