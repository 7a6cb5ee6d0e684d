// repair: flush+fence
// The store is in the initialiser of a variable.
#include "persist.h"
#include "pool.h"

struct list {
    uint64_t head;
    char pad[56];
    uint64_t tail;
};

static uint64_t reset(struct list *list) {
    uint64_t old = list->tail, head = list->head = 17; //~ missing-flush
    return old + head;
}

int main(int argc, char **argv) {
    struct list *list = pool_open(argv[argc - 1], 4096);
    printf("%lu\n", (unsigned long)reset(list));
    return 0;
}
