// repair: fence
// build: $CC -g -O2 -o app list.c -lpmem
// The drain comes before the last flush.
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>

struct node {
    uint64_t value;
    uint64_t pad[7];
};

static void set(struct node *nodes) {
    nodes[0].value = 1;
    pmem_flush(&nodes[0], sizeof nodes[0].value);
    pmem_drain();
    nodes[1].value = 2; //~ missing-fence
    pmem_flush(&nodes[1], sizeof nodes[1].value);
}

int main(int argc, char **argv) {
    size_t size;
    struct node *nodes = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    set(nodes);
    printf("%lu %lu\n", (unsigned long)nodes[0].value, (unsigned long)nodes[1].value);
    pmem_unmap(nodes, size);
    return 0;
}
