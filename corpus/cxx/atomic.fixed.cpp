// std::atomic in PM: exchange, fetch_add, compare_exchange, store; the last is not flushed.
#include "../pm.h"
#include <atomic>

struct Counters {
    alignas(64) std::atomic<uint64_t> a;
    alignas(64) std::atomic<uint32_t> b;
    alignas(64) std::atomic<uint8_t> c;
    alignas(64) std::atomic<bool> d;
};

int main(int argc, char **argv) {
    auto *counters = static_cast<Counters *>(pm_map(argv[argc - 1], PAGE));
    counters->a.fetch_add(5);
    pm_persist(&counters->a, 8);
    uint32_t expected = 0;
    bool swapped = counters->b.compare_exchange_strong(expected, 7);
    pm_persist(&counters->b, 4);
    uint8_t old = counters->c.exchange(9);
    pm_persist(&counters->c, 1);
    counters->d.store(true, std::memory_order_release);
    pm_persist(&counters->d, 1);
    printf("%lu %d %d %d\n", (unsigned long)counters->a, swapped, old, (int)counters->d);
    return 0;
}
