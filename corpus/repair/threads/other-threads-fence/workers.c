// repair: fence
// build: $CC -g -O2 -pthread -o app workers.c
// The fence is another thread's, and waits for that thread's flushes only.
#include "persist.h"
#include "pool.h"
#include <pthread.h>

struct slot {
    uint64_t result;
    uint64_t pad[7];
};

static void *work(void *argument) {
    struct slot *slot = argument;
    slot->result = 5; //~ missing-fence
    pm_flush(&slot->result, sizeof slot->result);
    return NULL;
}

int main(int argc, char **argv) {
    struct slot *slots = pool_open(argv[argc - 1], 4096);
    pthread_t thread;
    pthread_create(&thread, NULL, work, &slots[0]);
    pthread_join(thread, NULL);
    slots[1].result = 6;
    pm_flush(&slots[1].result, sizeof slots[1].result);
    pm_fence();
    printf("%lu %lu\n", (unsigned long)slots[0].result, (unsigned long)slots[1].result);
    return 0;
}
