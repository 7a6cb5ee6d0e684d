// libpmem's copy without drain is never drained.
// link: -lpmem
#include "../pm.h"
#include <libpmem.h>

int main(int argc, char **argv) {
    size_t len;
    int is_pmem;
    char *pm = pmem_map_file(argv[argc - 1], 4 * PAGE, PMEM_FILE_CREATE, 0600, &len, &is_pmem);
    char text[1000];
    memset(text, 'p', sizeof text);
    pmem_memcpy_nodrain(pm, text, 100);
    pmem_memset_nodrain(pm + PAGE, 'q', 1000);
    pmem_drain();
    printf("%zu %c %c\n", len, pm[99], pm[PAGE + 999]);
    pmem_unmap(pm, len);
    return 0;
}
