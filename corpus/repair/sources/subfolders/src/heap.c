#include "heap.h"
#include "persist.h"

struct block *heap_allocate(struct heap *heap, uint64_t size) {
    struct block *block = &heap->blocks[heap->used];
    block->size = size; //~ missing-flush
    pm_fence();
    heap->used += 1;
    pm_persist(&heap->used, sizeof heap->used);
    return block;
}
