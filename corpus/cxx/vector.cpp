// A vector-like container in PM whose growth copies elements and forgets to persist the copies.
#include "../pm.h"

class PmVector {
  public:
    void push_back(uint64_t value, char *heap) {
        if (size_ == capacity_) {
            uint64_t *bigger = reinterpret_cast<uint64_t *>(heap + next_);
            for (uint64_t i = 0; i < size_; i++)
                ((volatile uint64_t *)bigger)[i] = ((uint64_t *)(heap + data_))[i]; //~ missing-flush
            capacity_ = capacity_ ? capacity_ * 2 : 8;
            data_ = next_;
            next_ += capacity_ * 8;
        }
        uint64_t *slot = (uint64_t *)(heap + data_) + size_;
        *slot = value;
        pm_persist(slot, 8);
        size_++;
        pm_persist(this, sizeof *this);
    }
    uint64_t sum(const char *heap) const {
        uint64_t total = 0;
        for (uint64_t i = 0; i < size_; i++)
            total += ((const uint64_t *)(heap + data_))[i];
        return total;
    }

  private:
    volatile uint64_t size_, capacity_, data_, next_;
};

int main(int argc, char **argv) {
    char *pm = static_cast<char *>(pm_map(argv[argc - 1], 4 * PAGE));
    auto *vector = reinterpret_cast<PmVector *>(pm);
    for (uint64_t i = 0; i < 30; i++)
        vector->push_back(i, pm + PAGE);
    printf("%lu\n", (unsigned long)vector->sum(pm + PAGE));
    return 0;
}
