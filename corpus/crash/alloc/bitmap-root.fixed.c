// As bitmap-root.c, but the bitmap is persistent before the root points to the object.
#include "../app.h"

struct heap {
    _Alignas(LINE) uint64_t bitmap;
    _Alignas(LINE) uint64_t roots[4]; // 1 + index of the block; 0: none
    _Alignas(LINE) struct {
        _Alignas(LINE) uint64_t content;
    } blocks[8];
};

static int allocate(struct heap *heap) {
    int block = __builtin_ctzll(~heap->bitmap);
    heap->bitmap |= 1ull << block;
    pm_flush(&heap->bitmap, sizeof heap->bitmap);
    PM_SFENCE();
    return block;
}

static void add(struct heap *heap, int root, uint64_t content) {
    int block = allocate(heap);
    heap->blocks[block].content = content;
    pm_flush(&heap->blocks[block], LINE);
    PM_SFENCE();
    heap->roots[root] = block + 1;
    pm_persist(heap->roots, sizeof heap->roots);
}

static void run(const char *path) {
    struct heap *heap = (struct heap *)pm_map(path, PAGE);
    add(heap, 0, 70);
    add(heap, 1, 71);
}

// What no root leads to is free again: it was allocated when the crash came.
static void recover(const char *path) {
    struct heap *heap = (struct heap *)pm_map(path, PAGE);
    uint64_t reachable = 0;
    for (int root = 0; root < 4; root++) {
        if (heap->roots[root] == 0)
            continue;
        uint64_t bit = 1ull << (heap->roots[root] - 1);
        REQUIRE(heap->bitmap & bit, "root %d points to block %lu, which is free", root, heap->roots[root] - 1);
        REQUIRE(!(reachable & bit), "two roots point to block %lu", heap->roots[root] - 1);
        reachable |= bit;
    }
    heap->bitmap = reachable;
    pm_persist(&heap->bitmap, sizeof heap->bitmap);
}

APP(NULL, run, recover, NULL)
