// repair: flush
// build: $CC -g -O2 -o app table.c -lpmem
// pmem_persist of a pointer's size instead of the object's.
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct table {
    uint64_t rows[32];
};

static void load(struct table *table, const struct table *from) {
    memcpy(table, from, sizeof *table);
    pmem_persist(table, sizeof table);
}

int main(int argc, char **argv) {
    size_t size;
    struct table *table = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    struct table from;
    for (int i = 0; i < 32; i++)
        from.rows[i] = i * 5;
    load(table, &from); //~ missing-flush
    printf("%lu\n", (unsigned long)table->rows[31]);
    pmem_unmap(table, size);
    return 0;
}
