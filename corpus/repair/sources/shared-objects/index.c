#include "persist.h"
#include "store.h"

void index_set(struct store *store, uint64_t root) {
    store->root = root; //~ missing-fence
    pm_flush(&store->root, sizeof store->root);
}
