// A persistent<T> wrapper: one of its instances is assigned through a path without persist.
// build: gcc clang
#include "../pm.h"

template <typename T> class persistent {
  public:
    persistent &operator=(const T &value) {
        value_ = value;
        pm_persist((const void *)&value_, sizeof value_);
        return *this;
    }
    void set_without_persist(const T &value) {
        value_ = value;
    }
    operator T() const { return value_; }

  private:
    volatile T value_;
};

struct alignas(64) Slot {
    persistent<int> small;
    alignas(64) persistent<double> large;
};

int main(int argc, char **argv) {
    Slot *slot = static_cast<Slot *>(pm_map(argv[argc - 1], PAGE));
    slot->small = 5;
    slot->large.set_without_persist(2.5); //~ missing-flush in-stack
    printf("%d %.1f\n", (int)slot->small, (double)slot->large);
    return 0;
}
