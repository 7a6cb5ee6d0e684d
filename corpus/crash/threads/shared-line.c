// Two threads' fields share a line. Each thread persists what it changes, but the total is stored before the second part is
// flushed, by the thread that does not own it.
#include "../app.h"

#include <pthread.h>
#include <sched.h>

struct pool {
    _Alignas(LINE) uint64_t parts[2];
    _Alignas(LINE) uint64_t total;
};

static struct pool *pool;
static int turn;

static void wait_for(int wanted) {
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != wanted)
        sched_yield();
}

static void pass_on(int next) {
    __atomic_store_n(&turn, next, __ATOMIC_RELEASE);
}

static void *second(void *unused) {
    wait_for(1);
    pool->parts[1] = 20; //~ crash-order
    pass_on(2);
    wait_for(3);
    pm_persist(&pool->parts[1], sizeof pool->parts[1]);
    return unused;
}

static void run(const char *path) {
    pool = (struct pool *)pm_map(path, PAGE);
    pthread_t thread;
    if (pthread_create(&thread, NULL, second, NULL) != 0)
        pm_die("pthread_create");
    pool->parts[0] = 10;
    pm_persist(&pool->parts[0], sizeof pool->parts[0]);
    pass_on(1);
    wait_for(2);
    pool->total = pool->parts[0] + pool->parts[1]; //~ persisted
    pm_persist(&pool->total, sizeof pool->total);
    pass_on(3);
    pthread_join(thread, NULL);
}

static void recover(const char *path) {
    struct pool *found = (struct pool *)pm_map(path, PAGE);
    REQUIRE(found->total == 0 || found->total == found->parts[0] + found->parts[1], "%lu and %lu are %lu in all",
            found->parts[0], found->parts[1], found->total);
}

APP(NULL, run, recover, NULL)
