// SIGSEGV, SIGBUS and SIGTRAP sent by others, at any moment, to threads that store: to handlers that store too, on either stack,
// to one that leaves by siglongjmp; then ignored; then blocked and taken.
#include "pm.h"
#include <emmintrin.h>
#include <pthread.h>

#define WORKERS 3
#define SENT 1500

static const int sent[] = {SIGSEGV, SIGBUS, SIGTRAP};
static pthread_t workers[WORKERS];
static volatile int over;
static volatile int seen[3], wrong;
static __thread sigjmp_buf back;
static __thread volatile int may_jump;

static void on_signal(int signal, siginfo_t *info, void *context) {
    int which = signal == SIGSEGV ? 0 : signal == SIGBUS ? 1 : 2;
    if (info->si_code > 0 || info->si_pid != getpid()) wrong = 1;
    volatile long *counts = (volatile long *)(pm + WORKERS * 4096);
    __atomic_fetch_add(counts + which, 1, __ATOMIC_SEQ_CST);
    _mm_clflush((void *)counts);
    _mm_sfence();
    __atomic_fetch_add(seen + which, 1, __ATOMIC_SEQ_CST);
    if (may_jump && which == 1) siglongjmp(back, 1);
}

static void *work(void *argument) {
    static char alternate[WORKERS][65536];
    long me = (long)argument;
    stack_t stack = {.ss_sp = alternate[me], .ss_size = sizeof alternate[me]};
    CHECK(sigaltstack(&stack, NULL) == 0);
    volatile long *mine = (volatile long *)(pm + me * 4096);
    volatile long i = 0;
    sigsetjmp(back, 1);
    may_jump = me == 0;
    while (!over) {
        mine[0] = ++i;
        CHECK(mine[0] == i);
        __atomic_fetch_add(mine + 1, 1, __ATOMIC_SEQ_CST);
        memset((void *)(mine + 8), (int)i, 256);
        _mm_clflush((void *)mine);
        _mm_sfence();
        if (i % 64 == 0) {
            int fd = open("/dev/zero", O_RDONLY);
            CHECK(read(fd, (void *)(mine + 100), 64) == 64);
            close(fd);
        }
    }
    may_jump = 0;
    return NULL;
}

static void storm(void) {
    over = 0;
    for (long i = 0; i < WORKERS; i++) CHECK(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    for (unsigned n = 0; n < SENT; n++) {
        int signal = sent[n % 3];
        if (n / 3 % 3 == 0) pthread_kill(workers[n / 9 % WORKERS], signal);
        else if (n / 3 % 3 == 1) pthread_sigqueue(workers[n / 9 % WORKERS], signal, (union sigval){.sival_int = 1});
        else kill(getpid(), signal);
        usleep(20);
    }
    over = 1;
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_join(workers[i], NULL) == 0);
}

int main(void) {
    map_pm();
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | (i & 1 ? SA_ONSTACK : 0)};
        sigfillset(&action.sa_mask);
        sigaction(sent[i], &action, NULL);
    }
    storm();
    for (int i = 0; i < 3; i++) CHECK(seen[i] > 0 && ((long *)(pm + WORKERS * 4096))[i] == seen[i]);
    CHECK(!wrong);
    for (int i = 0; i < 3; i++) signal(sent[i], SIG_IGN);
    storm();
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGTRAP);
    CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    signal(SIGTRAP, SIG_DFL);
    raise(SIGTRAP);
    store();
    siginfo_t info;
    CHECK(sigwaitinfo(&one, &info) == SIGTRAP && info.si_pid == getpid());
    // The default action ends it, wherever the signal comes.
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        pm[PM_SIZE / 2] = 1;
        for (;;) store();
    }
    while (!pm[PM_SIZE / 2]) usleep(1000);
    CHECK(kill(child, SIGSEGV) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    puts("done");
    return 0;
}
