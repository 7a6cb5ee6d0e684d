// A lock that is held until the transaction has ended.
// link: -lpmemobj -lpthread
// file-differs: a pool has an identity of its own
#include "../pm.h"
#include <libpmemobj.h>
#include <pthread.h>
#include <semaphore.h>

struct root {
    uint64_t balance;
};

static PMEMobjpool *pool;
static struct root *root;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t given, done;

static void *second(void *argument) {
    sem_wait(&given);
    pthread_mutex_lock(&lock);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->balance, sizeof root->balance);
        root->balance += 2;
    } TX_END
    pthread_mutex_unlock(&lock);
    sem_post(&done);
    return argument;
}

static void let_second_work(void) {
    pthread_mutex_unlock(&lock);
    sem_post(&given);
    sem_wait(&done);
}

int main(int argc, char **argv) {
    pool = pmemobj_create(argv[argc - 1], "corpus", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        pm_die("pmemobj_create");
    root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    pthread_t thread;
    if (sem_init(&given, 0, 0) != 0 || sem_init(&done, 0, 0) != 0 || pthread_create(&thread, NULL, second, NULL) != 0)
        pm_die("thread");
    pthread_mutex_lock(&lock);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(&root->balance, sizeof root->balance);
        root->balance += 1;
    } TX_END
    let_second_work();
    pthread_join(thread, NULL);
    printf("%lu\n", root->balance);
    pmemobj_close(pool);
    return 0;
}
