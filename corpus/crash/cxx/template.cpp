// A template that publishes values of any type sets its flag too early, in each of its instances.
#include "../app.h"

template <typename T> class Published {
  public:
    void publish(const T &value) {
        value_ = value; //~ crash-order
        pm_flush(&value_, sizeof value_);
        published_ = 1; //~ persisted
        pm_persist(&published_, sizeof published_);
    }

    const T *get() const { return published_ ? &value_ : nullptr; }

  private:
    alignas(LINE) T value_;
    alignas(LINE) uint64_t published_;
};

struct Point {
    double x, y;
};

struct Pool {
    Published<uint32_t> number;
    Published<Point> point;
};

static void run(const char *path) {
    auto pool = static_cast<Pool *>(pm_map(path, PAGE));
    pool->number.publish(17);
    pool->point.publish(Point{1.5, 2.5});
}

static void recover(const char *path) {
    auto pool = static_cast<const Pool *>(pm_map(path, PAGE));
    if (const uint32_t *number = pool->number.get())
        REQUIRE(*number == 17, "the number is %u", *number);
    if (const Point *point = pool->point.get())
        REQUIRE(point->x == 1.5 && point->y == 2.5, "the point is %g, %g", point->x, point->y);
}

APP(nullptr, run, recover, nullptr)
