// repair: fence
// build: $CC -g -O2 -o app note.c -lpmem
// pmem_flush where pmem_persist was meant.
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>

int main(int argc, char **argv) {
    size_t size;
    uint64_t *words = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    words[0] = 1;
    pmem_persist(&words[0], sizeof words[0]);
    words[8] = 2; //~ missing-fence
    pmem_flush(&words[8], sizeof words[8]);
    printf("%lu %lu\n", (unsigned long)words[0], (unsigned long)words[8]);
    pmem_unmap(words, size);
    return 0;
}
