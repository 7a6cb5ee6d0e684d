// pmem_drain jumps to its implementation: what it waits for is the program's all the same.
// link: -lpmem
#include "../pm.h"
#include <libpmem.h>

int main(int argc, char **argv) {
    size_t length;
    uint64_t *p = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &length, NULL);
    if (!p)
        pm_die("pmem_map_file");
    p[0] = 1;
    pmem_flush(p, sizeof *p);
    pmem_drain();
    pmem_drain(); //~ redundant-fence
    printf("%lu\n", p[0]);
    pmem_unmap(p, length);
    return 0;
}
