// Every kind of lock of the C library beside data: the locks are in ordinary memory, and the data is persisted.
#include "../pm.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

struct locks {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_cond_t condition;
    sem_t semaphore;
    pthread_spinlock_t spin;
    pthread_barrier_t barrier;
    mtx_t c11_mutex;
    cnd_t c11_condition;
};

static struct locks locks;

struct shared {
    volatile uint64_t by_mutex;
    volatile uint64_t by_rwlock;
    volatile uint64_t by_condition;
    volatile uint64_t by_semaphore;
    volatile uint64_t by_spin;
    volatile uint64_t by_barrier;
    volatile uint64_t by_c11;
};

int main(int argc, char **argv) {
    struct shared *shared = pm_map(argv[argc - 1], PAGE);
    const struct timespec past = {0, 0};
    int failed = 0;

    locks.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    failed += pthread_mutex_lock(&locks.mutex) != 0;
    shared->by_mutex = 1;
    pm_persist((void *)&shared->by_mutex, 8);
    failed += pthread_mutex_unlock(&locks.mutex) != 0;
    failed += pthread_mutex_trylock(&locks.mutex) != 0;
    failed += pthread_mutex_unlock(&locks.mutex) != 0;
    failed += pthread_mutex_timedlock(&locks.mutex, &past) != 0;

    failed += pthread_rwlock_init(&locks.rwlock, NULL) != 0;
    failed += pthread_rwlock_tryrdlock(&locks.rwlock) != 0;
    failed += pthread_rwlock_unlock(&locks.rwlock) != 0;
    failed += pthread_rwlock_wrlock(&locks.rwlock) != 0;
    shared->by_rwlock = 2;
    pm_persist((void *)&shared->by_rwlock, 8);
    failed += pthread_rwlock_unlock(&locks.rwlock) != 0;

    failed += pthread_cond_init(&locks.condition, NULL) != 0;
    failed += pthread_cond_timedwait(&locks.condition, &locks.mutex, &past) != ETIMEDOUT;
    shared->by_condition = 3;
    pm_persist((void *)&shared->by_condition, 8);
    failed += pthread_cond_signal(&locks.condition) != 0;
    failed += pthread_mutex_unlock(&locks.mutex) != 0;

    failed += sem_init(&locks.semaphore, 1, 1) != 0;
    failed += sem_wait(&locks.semaphore) != 0;
    shared->by_semaphore = 4;
    pm_persist((void *)&shared->by_semaphore, 8);
    failed += sem_post(&locks.semaphore) != 0;
    failed += sem_trywait(&locks.semaphore) != 0;

    failed += pthread_spin_init(&locks.spin, PTHREAD_PROCESS_SHARED) != 0;
    failed += pthread_spin_lock(&locks.spin) != 0;
    shared->by_spin = 5;
    pm_persist((void *)&shared->by_spin, 8);
    failed += pthread_spin_unlock(&locks.spin) != 0;

    failed += pthread_barrier_init(&locks.barrier, NULL, 1) != 0;
    failed += pthread_barrier_wait(&locks.barrier) != PTHREAD_BARRIER_SERIAL_THREAD;
    shared->by_barrier = 6;
    pm_persist((void *)&shared->by_barrier, 8);

    failed += mtx_init(&locks.c11_mutex, mtx_plain) != thrd_success;
    failed += cnd_init(&locks.c11_condition) != thrd_success;
    failed += mtx_lock(&locks.c11_mutex) != thrd_success;
    failed += cnd_timedwait(&locks.c11_condition, &locks.c11_mutex, &past) != thrd_timedout;
    shared->by_c11 = 7;
    pm_persist((void *)&shared->by_c11, 8);
    failed += mtx_unlock(&locks.c11_mutex) != thrd_success;

    printf("%d failed\n", failed);
    return failed;
}
