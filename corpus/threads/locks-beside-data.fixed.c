// Every kind of lock of the C library beside data, in one structure: the locks are volatile, the data is not.
#include "../pm.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

struct shared {
    pthread_mutex_t mutex;
    volatile uint64_t by_mutex;
    pthread_rwlock_t rwlock;
    volatile uint64_t by_rwlock;
    pthread_cond_t condition;
    volatile uint64_t by_condition;
    sem_t semaphore;
    volatile uint64_t by_semaphore;
    pthread_spinlock_t spin;
    volatile uint64_t by_spin;
    pthread_barrier_t barrier;
    volatile uint64_t by_barrier;
    mtx_t c11_mutex;
    cnd_t c11_condition;
    volatile uint64_t by_c11;
};

int main(int argc, char **argv) {
    struct shared *shared = pm_map(argv[argc - 1], PAGE);
    const struct timespec past = {0, 0};
    int failed = 0;

    shared->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; //~? transient-data
    failed += pthread_mutex_lock(&shared->mutex) != 0; //~? transient-data
    shared->by_mutex = 1;
    pm_persist((void *)&shared->by_mutex, 8);
    failed += pthread_mutex_unlock(&shared->mutex) != 0; //~? transient-data
    failed += pthread_mutex_trylock(&shared->mutex) != 0; //~? transient-data
    failed += pthread_mutex_unlock(&shared->mutex) != 0; //~? transient-data
    failed += pthread_mutex_timedlock(&shared->mutex, &past) != 0; //~? transient-data

    failed += pthread_rwlock_init(&shared->rwlock, NULL) != 0; //~? transient-data
    failed += pthread_rwlock_tryrdlock(&shared->rwlock) != 0; //~? transient-data
    failed += pthread_rwlock_unlock(&shared->rwlock) != 0; //~? transient-data
    failed += pthread_rwlock_wrlock(&shared->rwlock) != 0; //~? transient-data
    shared->by_rwlock = 2;
    pm_persist((void *)&shared->by_rwlock, 8);
    failed += pthread_rwlock_unlock(&shared->rwlock) != 0; //~? transient-data

    failed += pthread_cond_init(&shared->condition, NULL) != 0; //~? transient-data
    failed += pthread_cond_timedwait(&shared->condition, &shared->mutex, &past) != ETIMEDOUT; //~? transient-data
    shared->by_condition = 3;
    pm_persist((void *)&shared->by_condition, 8);
    failed += pthread_cond_signal(&shared->condition) != 0; //~? transient-data
    failed += pthread_mutex_unlock(&shared->mutex) != 0; //~? transient-data

    failed += sem_init(&shared->semaphore, 1, 1) != 0; //~? transient-data
    failed += sem_wait(&shared->semaphore) != 0; //~? transient-data
    shared->by_semaphore = 4;
    pm_persist((void *)&shared->by_semaphore, 8);
    failed += sem_post(&shared->semaphore) != 0; //~? transient-data
    failed += sem_trywait(&shared->semaphore) != 0; //~? transient-data

    failed += pthread_spin_init(&shared->spin, PTHREAD_PROCESS_SHARED) != 0; //~? transient-data
    failed += pthread_spin_lock(&shared->spin) != 0; //~? transient-data
    shared->by_spin = 5;
    pm_persist((void *)&shared->by_spin, 8);
    failed += pthread_spin_unlock(&shared->spin) != 0; //~? transient-data

    failed += pthread_barrier_init(&shared->barrier, NULL, 1) != 0; //~? transient-data
    failed += pthread_barrier_wait(&shared->barrier) != PTHREAD_BARRIER_SERIAL_THREAD; //~? transient-data
    shared->by_barrier = 6;
    pm_persist((void *)&shared->by_barrier, 8);

    failed += mtx_init(&shared->c11_mutex, mtx_plain) != thrd_success; //~? transient-data
    failed += cnd_init(&shared->c11_condition) != thrd_success; //~? transient-data
    failed += mtx_lock(&shared->c11_mutex) != thrd_success; //~? transient-data
    failed += cnd_timedwait(&shared->c11_condition, &shared->c11_mutex, &past) != thrd_timedout; //~? transient-data
    shared->by_c11 = 7;
    pm_persist((void *)&shared->by_c11, 8);
    failed += mtx_unlock(&shared->c11_mutex) != thrd_success; //~? transient-data

    printf("%d failed\n", failed);
    return failed;
}
