// repair: flush, fence
// Two shared objects of the program, a bug in each.
#include "pool.h"
#include "store.h"

int main(int argc, char **argv) {
    struct store *store = pool_open(argv[argc - 1], 4096);
    store_put(store, 3, 33);
    store_put(store, 4, 44);
    index_set(store, 4);
    printf("%lu %lu\n", (unsigned long)store->count, (unsigned long)store->values[store->root][0]);
    return 0;
}
