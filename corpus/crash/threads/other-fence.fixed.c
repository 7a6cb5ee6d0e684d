// As other-fence.c, but the thread that flushes also fences, before it hands over.
#include "../app.h"

#include <pthread.h>
#include <sched.h>

struct slot {
    _Alignas(LINE) uint64_t value;
    _Alignas(LINE) uint64_t valid;
};

static struct slot *slot;
// Handed over by plain stores and loads, which fence nothing.
static int turn;

static void wait_for(int wanted) {
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != wanted)
        sched_yield();
}

static void pass_on(int next) {
    __atomic_store_n(&turn, next, __ATOMIC_RELEASE);
}

static void *writer(void *unused) {
    slot->value = 42;
    PM_CLWB(&slot->value);
    PM_SFENCE();
    pass_on(1);
    wait_for(2);
    return unused;
}

static void run(const char *path) {
    slot = (struct slot *)pm_map(path, PAGE);
    pthread_t thread;
    if (pthread_create(&thread, NULL, writer, NULL) != 0)
        pm_die("pthread_create");
    wait_for(1);
    PM_SFENCE();
    slot->valid = 1;
    pm_persist(&slot->valid, sizeof slot->valid);
    pass_on(2);
    pthread_join(thread, NULL);
}

static void recover(const char *path) {
    struct slot *found = (struct slot *)pm_map(path, PAGE);
    REQUIRE(!found->valid || found->value == 42, "the slot is valid and holds %lu", found->value);
}

APP(NULL, run, recover, NULL)
