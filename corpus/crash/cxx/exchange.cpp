// setup: yes
// std::swap on two persistent values is two stores, with a moment between them in which one value is there twice.
#include "../app.h"

#include <utility>

struct Buffers {
    alignas(LINE) uint64_t active;
    alignas(LINE) uint64_t spare;

    void exchange() {
        std::swap(active, spare); //~ crash-atomicity //~ persisted
        pm_persist(this, sizeof *this);
    }
};

static void setup(const char *path) {
    auto buffers = static_cast<Buffers *>(pm_map(path, PAGE));
    *buffers = Buffers{1, 2};
    pm_persist(buffers, sizeof *buffers);
}

static void run(const char *path) {
    static_cast<Buffers *>(pm_map(path, PAGE))->exchange();
}

static void recover(const char *path) {
    auto buffers = static_cast<const Buffers *>(pm_map(path, PAGE));
    uint64_t active = buffers->active, spare = buffers->spare;
    REQUIRE(active != spare && active + spare == 3, "buffer %lu is active, %lu is spare", active, spare);
}

APP(setup, run, recover, nullptr)
