// repair: flush+fence
// build: $CC -g -O2 -o app journal.c -lpmem
// libpmem is linked for its mapping only.
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>

struct journal {
    uint64_t sequence;
    char pad[56];
    uint64_t state;
};

static void begin(struct journal *journal) {
    journal->sequence++; //~ missing-flush
    journal->state = 1; //~ missing-flush
}

int main(int argc, char **argv) {
    size_t size;
    struct journal *journal = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    begin(journal);
    printf("%lu %lu\n", (unsigned long)journal->sequence, (unsigned long)journal->state);
    pmem_unmap(journal, size);
    return 0;
}
