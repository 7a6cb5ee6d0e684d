// Two threads store beside a range, to the same page, while it is registered and taken back.
// link: -lpthread
#include "../pm.h"
#include <pthread.h>

enum { ROUNDS = 60 };

static struct {
    uint64_t range[8];
    uint64_t counts[2];
    uint64_t both;
} __attribute__((aligned(64))) data;
static int done;

static void *run(void *count) {
    uint64_t *own = count;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        uint64_t before = *own;
        *own += 1;
        __atomic_fetch_add(&data.both, 1, __ATOMIC_SEQ_CST);
        if (*own != before + 1)
            abort();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run, &data.counts[i]);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        PM_REGISTER(data.range, sizeof data.range);
        data.range[0] = i; //~ missing-flush
        usleep(200);
        PM_UNREGISTER(data.range, sizeof data.range);
        data.range[1] = i;
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%d %lu %lu\n", data.counts[0] + data.counts[1] == data.both, data.range[0], data.range[1]);
    return 0;
}
