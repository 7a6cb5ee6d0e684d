// Threads on the smallest stacks, with everything blocked, ending in every way.
#include "pm.h"
#include <pthread.h>
#include <threads.h>
#include <time.h>

static void *reader(void *argument) {
    store();
    char *buffer = (char *)pm + 4096 * (1 + (long)argument);
    FILE *file = fopen("/etc/passwd", "r");
    CHECK(fread(buffer, 1, 50, file) == 50);
    fclose(file);
    return (char *)argument + 1;
}

static void *exiter(void *argument) {
    store();
    pthread_exit((void *)5);
}

static void cleanup(void *done) {
    store();
    *(volatile int *)done = 1;
}

static int pipe_ends[2];

// Is cancelled while a read into PM blocks.
static void *blocked(void *done) {
    pthread_cleanup_push(cleanup, done);
    CHECK(read(pipe_ends[0], (char *)pm + 8192, 10) > 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static int c11(void *argument) {
    store();
    return 12;
}

static volatile int fired;

static volatile int handled;
static sigjmp_buf jump;

static void on_signal(int signal) {
    store();
    handled++;
}

static void on_fault(int signal) {
    store();
    siglongjmp(jump, 1);
}

// Runs in a thread that the runtime did not see coming, and that has no stack of ours.
static void on_timer(union sigval value) {
    store();
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &action, NULL);
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    for (volatile int i = 0; i < 5; i++) {
        raise(SIGUSR2);
        if (!sigsetjmp(jump, 1)) *(volatile int *)8 = 1;
        store();
        reader((void *)9);
    }
    CHECK(handled == 5);
    signal(SIGSEGV, SIG_DFL);
    fired = 1;
}

static pthread_key_t key;

static void destroy(void *value) { store(); }

static void *with_destructor(void *argument) {
    pthread_setspecific(key, argument);
    return NULL;
}

int main(void) {
    map_pm();
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    sigset_t all;
    sigfillset(&all);
    pthread_attr_setsigmask_np(&small, &all);
    for (int round = 0; round < 20; round++) {
        pthread_t threads[8];
        for (long i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], &small, reader, (void *)i) == 0);
        for (long i = 0; i < 8; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0 && result == (void *)(i + 1));
        }
    }

    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, exiter, NULL) == 0 && pthread_join(thread, &result) == 0 && result == (void *)5);

    volatile int done = 0;
    CHECK(pipe(pipe_ends) == 0);
    CHECK(pthread_create(&thread, NULL, blocked, (void *)&done) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && done);

    thrd_t other;
    int status;
    CHECK(thrd_create(&other, c11, NULL) == thrd_success && thrd_join(other, &status) == thrd_success && status == 12);

    pthread_t *in_pm = (pthread_t *)(pm + 512);
    CHECK(pthread_create(in_pm, NULL, exiter, NULL) == 0 && pthread_join(*in_pm, &result) == 0 && result == (void *)5);

    CHECK(pthread_key_create(&key, destroy) == 0);
    CHECK(pthread_create(&thread, NULL, with_destructor, &key) == 0 && pthread_join(thread, NULL) == 0);

    // A thread that libc makes by itself.
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
    for (int i = 0; i < 1000 && !fired; i++) usleep(1000);
    CHECK(fired);
    puts("done");
    return 0;
}
