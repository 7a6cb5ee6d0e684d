// The stack of a running thread cannot be recorded, and the trace says so. Other memory that is registered is.
// link: -lpthread
// incomplete: the stack
#include "../pm.h"
#include <pthread.h>

static uint64_t words[8];

static void *run(void *unused) {
    volatile uint64_t local = 1;
    PM_REGISTER(&local, 8);
    local = 2;
    return unused;
}

int main(void) {
    volatile uint64_t local = 1;
    pthread_t thread;
    PM_REGISTER(&local, 8);
    PM_REGISTER(words, sizeof words);
    local = 2;
    words[0] = 1; //~ missing-flush
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    printf("%lu %lu\n", words[0], local);
    return 0;
}
