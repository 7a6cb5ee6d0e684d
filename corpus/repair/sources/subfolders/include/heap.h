#pragma once
#include <stdint.h>

struct heap {
    uint64_t used;
    char pad[56];
    struct block {
        uint64_t size;
        uint64_t pad[7];
    } blocks[16];
};

struct block *heap_allocate(struct heap *heap, uint64_t size);
