// Publishing through PM between threads: the flag is durable, what it guards is not.
#include "../pm.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct mail {
    volatile uint64_t body;
    char pad[56];
    _Atomic uint32_t ready;
};

static struct mail *mail;

static void *reader(void *arg) {
    while (!atomic_load_explicit(&mail->ready, memory_order_acquire))
        sched_yield();
    *(uint64_t *)arg = mail->body;
    return NULL;
}

int main(int argc, char **argv) {
    mail = pm_map(argv[argc - 1], PAGE);
    uint64_t seen = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, reader, &seen);
    mail->body = 12;
    pm_persist((void *)&mail->body, 8);
    atomic_store_explicit(&mail->ready, 1, memory_order_release);
    pm_persist(&mail->ready, sizeof mail->ready);
    pthread_join(thread, NULL);
    printf("%lu\n", (unsigned long)seen);
    return 0;
}
