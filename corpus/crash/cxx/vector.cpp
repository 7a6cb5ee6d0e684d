// push_back raises the size before the element is there.
#include "../app.h"

#include <initializer_list>

class Vector {
  public:
    void push_back(uint64_t value) {
        uint64_t at = size_++; //~ persisted
        pm_persist(&size_, sizeof size_);
        elements_[at] = value; //~ crash-order
        pm_persist(&elements_[at], sizeof value);
    }

    uint64_t size() const { return size_; }
    const uint64_t *begin() const { return elements_; }
    const uint64_t *end() const { return elements_ + size_; }

  private:
    alignas(LINE) uint64_t size_;
    alignas(LINE) uint64_t elements_[16];
};

static void run(const char *path) {
    auto vector = static_cast<Vector *>(pm_map(path, PAGE));
    for (uint64_t value : {5, 6, 7})
        vector->push_back(value);
}

static void recover(const char *path) {
    auto vector = static_cast<Vector *>(pm_map(path, PAGE));
    REQUIRE(vector->size() <= 3, "%lu elements", vector->size());
    uint64_t expected = 5;
    for (uint64_t value : *vector) {
        REQUIRE(value == expected, "element %lu instead of %lu", value, expected);
        expected++;
    }
}

APP(nullptr, run, recover, nullptr)
