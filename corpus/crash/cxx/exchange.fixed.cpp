// setup: yes
// As exchange.cpp, but which of the two comes first is said by one value, and that is what changes.
#include "../app.h"

#include <utility>

struct Buffers {
    alignas(LINE) uint64_t buffers[2];
    alignas(LINE) uint64_t which;

    uint64_t active() const { return buffers[which]; }
    uint64_t spare() const { return buffers[1 - which]; }

    void exchange() {
        which = 1 - which;
        pm_persist(&which, sizeof which);
    }
};

static void setup(const char *path) {
    auto buffers = static_cast<Buffers *>(pm_map(path, PAGE));
    *buffers = Buffers{{1, 2}, 0};
    pm_persist(buffers, sizeof *buffers);
}

static void run(const char *path) {
    static_cast<Buffers *>(pm_map(path, PAGE))->exchange();
}

static void recover(const char *path) {
    auto buffers = static_cast<const Buffers *>(pm_map(path, PAGE));
    uint64_t active = buffers->active(), spare = buffers->spare();
    REQUIRE(active != spare && active + spare == 3, "buffer %lu is active, %lu is spare", active, spare);
}

APP(setup, run, recover, nullptr)
