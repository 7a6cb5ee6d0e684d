// Mutexes in PM: plain ones, those whose word the kernel writes, and one that cannot be recorded.
#include "pm.h"
#include <pthread.h>

static pthread_mutex_t *mutex;
static int counter;

static void *worker(void *argument) {
    for (int i = 0; i < 200; i++) {
        CHECK(pthread_mutex_lock(mutex) == 0);
        counter++;
        if (i % 10 == 0) usleep(100);
        CHECK(pthread_mutex_unlock(mutex) == 0);
    }
    return NULL;
}

static void contend(void) {
    pthread_t threads[3];
    counter = 0;
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(counter == 600);
}

int main(void) {
    map_pm();
    mutex = (pthread_mutex_t *)(pm + 4096);
    CHECK(pthread_mutex_init(mutex, NULL) == 0);
    contend();

    pthread_mutexattr_t inheriting;
    pthread_mutexattr_init(&inheriting);
    CHECK(pthread_mutexattr_setprotocol(&inheriting, PTHREAD_PRIO_INHERIT) == 0);
    mutex = (pthread_mutex_t *)(pm + 8192);
    CHECK(pthread_mutex_init(mutex, &inheriting) == 0);
    contend();

    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    CHECK(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init((pthread_mutex_t *)(pm + 12288), &robust) == 0);
    puts("done");
    return 0;
}
