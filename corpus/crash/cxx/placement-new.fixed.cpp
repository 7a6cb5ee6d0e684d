// As placement-new.cpp, but it is marked as alive when it is constructed and persistent.
#include "../app.h"

#include <new>

enum : uint64_t { ALIVE = 0xa11fe };

class Object {
  public:
    bool alive() const { return mark_ == ALIVE; }

    void bring_to_life() {
        mark_ = ALIVE;
        pm_persist(&mark_, sizeof mark_);
    }

  protected:
    // Keeps what was there: a new object has zero.
    Object() {}

  private:
    alignas(LINE) uint64_t mark_;
};

class Order : public Object {
  public:
    explicit Order(uint64_t amount) : amount_(amount) {
        pm_persist(this, sizeof *this);
    }

    uint64_t amount() const { return amount_; }

  private:
    alignas(LINE) uint64_t amount_;
};

static void run(const char *path) {
    auto orders = static_cast<Order *>(pm_map(path, PAGE));
    for (uint64_t i = 0; i < 2; i++) {
        new (&orders[i]) Order(i + 300);
        orders[i].bring_to_life();
    }
}

static void recover(const char *path) {
    auto orders = static_cast<const Order *>(pm_map(path, PAGE));
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE(!orders[i].alive() || orders[i].amount() == i + 300, "order %lu is over %lu", i, orders[i].amount());
}

APP(nullptr, run, recover, nullptr)
