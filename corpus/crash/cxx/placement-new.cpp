// An object is constructed in PM. Its base class marks it as alive before the derived class has filled it.
#include "../app.h"

#include <new>

enum : uint64_t { ALIVE = 0xa11fe };

class Object {
  public:
    bool alive() const { return mark_ == ALIVE; }

  protected:
    Object() : mark_(ALIVE) { //~ persisted
        pm_persist(&mark_, sizeof mark_);
    }

  private:
    alignas(LINE) uint64_t mark_;
};

class Order : public Object {
  public:
    explicit Order(uint64_t amount) : amount_(amount) { //~ crash-order
        pm_persist(this, sizeof *this);
    }

    uint64_t amount() const { return amount_; }

  private:
    alignas(LINE) uint64_t amount_;
};

static void run(const char *path) {
    auto orders = static_cast<Order *>(pm_map(path, PAGE));
    for (uint64_t i = 0; i < 2; i++)
        new (&orders[i]) Order(i + 300);
}

static void recover(const char *path) {
    auto orders = static_cast<const Order *>(pm_map(path, PAGE));
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE(!orders[i].alive() || orders[i].amount() == i + 300, "order %lu is over %lu", i, orders[i].amount());
}

APP(nullptr, run, recover, nullptr)
