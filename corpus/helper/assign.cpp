// The assignment of a pointer class: two mistakes in one object are told apart by who assigns.
// build: gcc clang
// flags: -O0 -O2
#include "../pm.h"

template <typename T> class pointer {
    volatile uint64_t offset_;

  public:
    __attribute__((noinline)) pointer &operator=(uint64_t offset) {
        offset_ = offset;
        return *this;
    }
    uint64_t offset() const { return offset_; }
};

struct alignas(LINE) node {
    pointer<node> next;
};

struct pool {
    node head, tail, spare;
};

__attribute__((noinline)) static void link_head(pool *pool) {
    pool->head.next = 64; //~ missing-flush
    PM_BARRIER();
}

__attribute__((noinline)) static void link_tail(pool *pool) {
    pool->tail.next = 128; //~ missing-flush
    PM_BARRIER();
}

__attribute__((noinline)) static void link_spare(pool *pool) {
    pool->spare.next = 192;
    pm_persist(&pool->spare, sizeof pool->spare);
}

int main(int argc, char **argv) {
    pool *all = static_cast<pool *>(pm_map(argv[argc - 1], PAGE));
    link_head(all);
    link_tail(all);
    link_spare(all);
    printf("%lu\n", static_cast<unsigned long>(all->head.next.offset() + all->tail.next.offset()));
    return 0;
}
