// repair: flush, fence, flush+fence
// Three bugs in three functions.
#include "persist.h"
#include "pool.h"

struct table {
    uint64_t size;
    char pad0[56];
    uint64_t used;
    char pad1[56];
    uint64_t cells[64];
};

static void insert(struct table *table, uint64_t cell, uint64_t value) {
    table->cells[cell] = value; //~ missing-flush
    pm_fence();
    table->used = table->used + 1;
    pm_flush(&table->used, sizeof table->used);
    pm_fence();
}

static void resize(struct table *table, uint64_t size) {
    table->size = size; //~ missing-fence
    pm_flush(&table->size, sizeof table->size);
}

static void erase(struct table *table, uint64_t cell) {
    table->cells[cell] = 0; //~ missing-flush
}

int main(int argc, char **argv) {
    struct table *table = pool_open(argv[argc - 1], 4096);
    insert(table, 3, 33);
    insert(table, 20, 66);
    erase(table, 63);
    resize(table, 128);
    printf("%lu used, size %lu, %lu\n", (unsigned long)table->used, (unsigned long)table->size,
           (unsigned long)table->cells[20]);
    return 0;
}
