// As publish-unflushed.c, but an entry is persistent before it is handed over.
#include "../app.h"

#include <pthread.h>
#include <sched.h>

#define ENTRIES 2

struct log {
    _Alignas(LINE) uint64_t published;
    struct {
        _Alignas(LINE) uint64_t value;
    } entries[ENTRIES];
};

static struct log *pool;
static int filled, published;

static void wait_for(int *counter, int value) {
    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < value)
        sched_yield();
}

static void *producer(void *unused) {
    for (int i = 0; i < ENTRIES; i++) {
        pool->entries[i].value = 500 + i;
        pm_persist(&pool->entries[i], LINE);
        __atomic_store_n(&filled, i + 1, __ATOMIC_RELEASE);
        wait_for(&published, i + 1);
    }
    return unused;
}

static void run(const char *path) {
    pool = (struct log *)pm_map(path, PAGE);
    pthread_t thread;
    if (pthread_create(&thread, NULL, producer, NULL) != 0)
        pm_die("pthread_create");
    for (int i = 0; i < ENTRIES; i++) {
        wait_for(&filled, i + 1);
        pool->published = i + 1;
        pm_persist(&pool->published, sizeof pool->published);
        __atomic_store_n(&published, i + 1, __ATOMIC_RELEASE);
    }
    pthread_join(thread, NULL);
}

static void recover(const char *path) {
    struct log *log = (struct log *)pm_map(path, PAGE);
    REQUIRE(log->published <= ENTRIES, "%lu entries are published", log->published);
    for (uint64_t i = 0; i < log->published; i++)
        REQUIRE(log->entries[i].value == 500 + i, "entry %lu is published and holds %lu", i, log->entries[i].value);
}

APP(NULL, run, recover, NULL)
