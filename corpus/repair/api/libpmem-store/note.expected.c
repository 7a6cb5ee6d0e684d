// repair: flush+fence
// build: $CC -g -O2 -o app note.c -lpmem
// A store, and no pmem_persist.
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>

struct note {
    uint64_t id;
    char pad[56];
    uint64_t length;
};

int main(int argc, char **argv) {
    size_t size;
    struct note *note = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    note->id = 7;
    pmem_persist(&note->id, sizeof note->id);
    note->length = 12;
    pmem_persist(&note->length, sizeof note->length);
    printf("%lu %lu\n", (unsigned long)note->id, (unsigned long)note->length);
    pmem_unmap(note, size);
    return 0;
}
