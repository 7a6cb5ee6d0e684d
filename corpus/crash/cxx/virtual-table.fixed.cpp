// signal: 11
// pie: no
// As virtual-table.cpp, but the object's pointer to its table is persistent before the count includes it.
#include "../app.h"

#include <new>

class alignas(LINE) Step {
  public:
    Step() {}
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
    PM_SFENCE();
    pipeline->count++;
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
