// A thread-local object's destructor flushes what its thread stored, and does not fence.
#include "../pm.h"
#include <thread>

static volatile uint64_t *pm;

struct Flusher {
    volatile uint64_t *dirty = nullptr;
    ~Flusher() {
        if (dirty) {
            PM_CLWB(dirty);
        }
    }
};

static thread_local Flusher flusher;

int main(int argc, char **argv) {
    pm = static_cast<volatile uint64_t *>(pm_map(argv[argc - 1], PAGE));
    std::thread([] {
        pm[0] = 4; //~ missing-fence
        flusher.dirty = pm;
    }).join();
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
