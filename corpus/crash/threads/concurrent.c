// brute-force: no, its threads come in any order, so two runs need not have the same states
// Two threads append to one log under a mutex. The mutex orders the appends, not what persists of one.
#include "../app.h"

#include <pthread.h>

#define EACH 2

struct log {
    _Alignas(LINE) uint64_t count;
    struct {
        _Alignas(LINE) uint64_t author; // 1 or 2
    } entries[2 * EACH];
};

static struct log *shared;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void append(uint64_t author) {
    uint64_t count = shared->count;
    shared->entries[count].author = author; //~ crash-order
    PM_CLWB(&shared->entries[count]);
    shared->count = count + 1; //~ persisted
    PM_CLWB(&shared->count);
    PM_SFENCE();
}

static void *writer(void *author) {
    for (int i = 0; i < EACH; i++) {
        pthread_mutex_lock(&mutex);
        append((uint64_t)(uintptr_t)author);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void run(const char *path) {
    shared = (struct log *)pm_map(path, PAGE);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, writer, (void *)(i + 1)) != 0)
            pm_die("pthread_create");
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void recover(const char *path) {
    struct log *log = (struct log *)pm_map(path, PAGE);
    REQUIRE(log->count <= 2 * EACH, "%lu entries", log->count);
    for (uint64_t i = 0; i < log->count; i++)
        REQUIRE(log->entries[i].author == 1 || log->entries[i].author == 2, "entry %lu has no author", i);
}

APP(NULL, run, recover, NULL)
