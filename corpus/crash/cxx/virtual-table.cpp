// signal: 11
// pie: no
// Objects with virtual functions are kept in PM (a program at a fixed address finds its tables again). The count may
// persist before an object's pointer to its table, and recovery calls through what is there.
#include "../app.h"

#include <new>

class alignas(LINE) Step {
  public:
    Step() {} //~ crash-order
    virtual uint64_t apply(uint64_t value) const { return value * 2 + 1; }
};

struct Pipeline {
    alignas(LINE) uint64_t count;
    alignas(LINE) char storage[4][LINE];

    const Step *at(uint64_t index) const { return reinterpret_cast<const Step *>(storage[index]); }
};

static void add(Pipeline *pipeline) {
    void *place = pipeline->storage[pipeline->count];
    new (place) Step;
    pm_flush(place, sizeof(Step));
    pipeline->count++; //~ persisted
    pm_persist(&pipeline->count, sizeof pipeline->count);
}

static void run(const char *path) {
    auto pipeline = static_cast<Pipeline *>(pm_map(path, PAGE));
    add(pipeline);
    add(pipeline);
}

static void recover(const char *path) {
    auto pipeline = static_cast<const Pipeline *>(pm_map(path, PAGE));
    REQUIRE(pipeline->count <= 2, "%lu steps", pipeline->count);
    uint64_t value = 0;
    for (uint64_t i = 0; i < pipeline->count; i++)
        value = pipeline->at(i)->apply(value);
    REQUIRE(value == (1ull << pipeline->count) - 1, "%lu steps make %lu", pipeline->count, value);
}

APP(nullptr, run, recover, nullptr)
