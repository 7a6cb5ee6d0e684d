// Everything at once: eight threads that store and read into PM under a storm of signals, while others come, go and fork.
#include "pm.h"
#include <pthread.h>

#define WORKERS 8
#define EACH 65536

static pthread_t workers[WORKERS];
static volatile int working = WORKERS;
static volatile int seen;

static void on_signal(int signal) {
    store();
    __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    static char alternate[WORKERS][65536];
    long me = (long)argument;
    stack_t stack = {.ss_sp = alternate[me], .ss_size = sizeof alternate[me]};
    CHECK(sigaltstack(&stack, NULL) == 0);
    volatile char *mine = pm + me * EACH;
    volatile long *shared = (volatile long *)(pm + WORKERS * EACH);
    FILE *file = fopen("/etc/passwd", "r");
    setvbuf(file, NULL, _IONBF, 0);
    char text[64];
    CHECK(fread(text, 1, 64, file) == 64);
    for (int i = 0; i < 3000; i++) {
        mine[i % 1000] = i;
        CHECK(mine[i % 1000] == (char)i);
        __atomic_fetch_add(shared, 1, __ATOMIC_SEQ_CST);
        if (i % 50 == 0) {
            rewind(file);
            CHECK(fread((char *)mine + 4096, 1, 64, file) == 64 && !memcmp((char *)mine + 4096, text, 64));
        }
    }
    fclose(file);
    __atomic_fetch_sub(&working, 1, __ATOMIC_SEQ_CST);
    while (working || !seen) usleep(1000);
    return NULL;
}

static void *shortly(void *argument) {
    store();
    return NULL;
}

int main(void) {
    map_pm();
    struct sigaction plain = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction on_stack = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigfillset(&plain.sa_mask);
    sigfillset(&on_stack.sa_mask);
    sigaction(SIGUSR1, &plain, NULL);
    sigaction(SIGUSR2, &on_stack, NULL);
    for (long i = 0; i < WORKERS; i++) CHECK(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    for (int round = 0; working || !seen; round++) {
        for (int i = 0; i < WORKERS; i++) pthread_kill(workers[i], (round + i) & 1 ? SIGUSR1 : SIGUSR2);
        usleep(200);
        if (round % 20 == 0) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, shortly, NULL) == 0 && pthread_join(thread, NULL) == 0);
        }
        if (round % 100 == 0) {
            pid_t child = fork();
            if (!child) {
                store();
                _exit(3);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
        }
    }
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(*(volatile long *)(pm + WORKERS * EACH) == WORKERS * 3000);
    puts("done");
    return 0;
}
