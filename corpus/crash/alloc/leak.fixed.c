// check: yes
// As leak.c, but recovery gives back what nothing leads to.
#include "../app.h"

struct heap {
    _Alignas(LINE) uint64_t bitmap;
    _Alignas(LINE) uint64_t roots[4]; // 1 + index of the block; 0: none
};

static void add(struct heap *heap, int root) {
    int block = __builtin_ctzll(~heap->bitmap);
    heap->bitmap |= 1ull << block;
    pm_persist(&heap->bitmap, sizeof heap->bitmap);
    heap->roots[root] = block + 1;
    pm_persist(heap->roots, sizeof heap->roots);
}

static void run(const char *path) {
    struct heap *heap = (struct heap *)pm_map(path, PAGE);
    add(heap, 0);
    add(heap, 1);
}

static uint64_t reachable(struct heap *heap) {
    uint64_t blocks = 0;
    for (int root = 0; root < 4; root++)
        blocks |= heap->roots[root] == 0 ? 0 : 1ull << (heap->roots[root] - 1);
    return blocks;
}

static void recover(const char *path) {
    struct heap *heap = (struct heap *)pm_map(path, PAGE);
    REQUIRE((reachable(heap) & ~heap->bitmap) == 0, "a root points to a free block");
    heap->bitmap = reachable(heap);
    pm_persist(&heap->bitmap, sizeof heap->bitmap);
}

static void check(const char *path) {
    struct heap *heap = (struct heap *)pm_map(path, PAGE);
    uint64_t leaked = heap->bitmap & ~reachable(heap);
    REQUIRE(leaked == 0, "blocks %#lx are allocated and nothing leads to them", leaked);
}

APP(NULL, run, recover, check)
