#include "store.h"
#include "persist.h"

void store_put(struct store *store, uint64_t at, uint64_t value) {
    store->values[at][0] = value; //~ missing-flush
    store->count++;
    pm_persist(&store->count, sizeof store->count);
}
