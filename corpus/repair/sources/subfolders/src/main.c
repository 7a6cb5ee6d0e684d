// repair: flush
// Sources, headers and objects in folders of their own.
#include "heap.h"
#include "pool.h"

int main(int argc, char **argv) {
    struct heap *heap = pool_open(argv[argc - 1], 4096);
    heap_allocate(heap, 10);
    struct block *block = heap_allocate(heap, 20);
    printf("%lu %lu\n", (unsigned long)heap->used, (unsigned long)block->size);
    return 0;
}
