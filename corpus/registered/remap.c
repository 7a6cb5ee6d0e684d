// Registered memory that mremap grows, moves and shrinks stays registered at its new place; what it is grown by is not.
#include "../pm.h"

static uint64_t *move(uint64_t *at, size_t old, size_t new, int flags, void *to) {
    uint64_t *moved = mremap(at, old, new, flags, to);
    if (moved == MAP_FAILED)
        pm_die("mremap");
    return moved;
}

static void *anonymous(size_t len, int flags) {
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        pm_die("mmap");
    return at;
}

int main(void) {
    const size_t page = PAGE / 8;
    // The registered page is the second of four, so that the mapping is of several pieces while it is recorded.
    uint64_t *at = anonymous(4 * PAGE, MAP_PRIVATE);
    at[0] = 1, at[page] = 2, at[3 * page] = 3;
    PM_REGISTER(at + page, PAGE);
    at[page + 8] = 4; // Flushed after the move.
    uint64_t *place = anonymous(16 * PAGE, MAP_PRIVATE);
    at = move(at, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    pm_persist(at + page + 8, 8);
    at[page + 16] = 5; //~ missing-flush
    at[2 * page] = 6, at[7 * page] = 7;
    printf("%lu %lu %lu %lu %lu %lu %lu\n", at[0], at[page], at[page + 8], at[page + 16], at[2 * page], at[3 * page], at[7 * page]);

    // In place: what follows is unmapped first.
    munmap(at + 8 * page, 8 * PAGE);
    at = move(at, 8 * PAGE, 10 * PAGE, 0, NULL);
    at[9 * page] = 8;
    at[page + 24] = 9; //~ missing-flush
    printf("%lu %lu %lu\n", at[9 * page], at[page + 24], at[page + 16]);

    // The registered page is the last one: it is grown by ordinary memory.
    at = move(at, 10 * PAGE, 2 * PAGE, 0, NULL);
    at = move(at, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE, NULL);
    at[2 * page] = 10, at[63 * page] = 11;
    at[page + 32] = 12; //~ missing-flush
    printf("%lu %lu %lu %lu\n", at[0], at[2 * page], at[63 * page], at[page + 32]);

    // Something else where it was: two mappings that have nothing to do with each other.
    uint64_t *first = anonymous(2 * PAGE, MAP_PRIVATE);
    PM_REGISTER(first, 2 * PAGE);
    first[0] = 13;
    pm_persist(first, 8);
    uint64_t *second = move(first, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous(2 * PAGE, MAP_PRIVATE));
    if (mmap(first, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != first)
        pm_die("mmap");
    PM_REGISTER(first, 2 * PAGE);
    first[8] = 14;
    second[16] = 15;
    pm_persist(first + 8, 8);
    pm_persist(second + 16, 8);
    printf("%lu %lu %lu %lu\n", first[0], first[8], second[0], second[16]);

    // Shared memory.
    uint64_t *shared = anonymous(2 * PAGE, MAP_SHARED);
    PM_REGISTER(shared, 2 * PAGE);
    shared[0] = 16;
    shared = move(shared, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous(2 * PAGE, MAP_PRIVATE));
    pm_persist(shared, 8);
    shared[page] = 17; //~ missing-flush
    shared = move(shared, 2 * PAGE, PAGE, 0, NULL);
    printf("%lu\n", shared[0]);

    // What the kernel refuses.
    int none = mremap(second, 2 * PAGE, 2 * PAGE, MREMAP_FIXED, shared) == MAP_FAILED;
    none += mremap(second, 2 * PAGE, 0, MREMAP_MAYMOVE) == MAP_FAILED;
    none += mremap(second, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, second + page) == MAP_FAILED;
    printf("%d\n", none);
    munmap(at, 64 * PAGE);
    munmap(shared, PAGE);
    return 0;
}
