// repair: flush+fence
// build: $CC -g -O2 -pthread -o app workers.c
// Each thread writes its slot and persists nothing.
#include "persist.h"
#include "pool.h"
#include <pthread.h>

struct slot {
    uint64_t result;
    uint64_t pad[7];
};

static void *work(void *argument) {
    struct slot *slot = argument;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 100; i++)
        sum += i;
    slot->result = sum; //~ missing-flush x3
    return NULL;
}

int main(int argc, char **argv) {
    struct slot *slots = pool_open(argv[argc - 1], 4096);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, &slots[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("%lu %lu\n", (unsigned long)slots[0].result, (unsigned long)slots[2].result);
    return 0;
}
