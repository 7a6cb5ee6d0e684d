// Signals that arrive all the time while the program stores, each of a kind that is delivered in its own way, with handlers that store and
// fence too. Each sees the mask that it would see without us, and none is lost.
#include "pm.h"
#include <sys/time.h>

static volatile long counts[4];

static void persist(volatile void *at) {
    __asm__ volatile("clflush %0" : "+m"(*(volatile char *)at));
    __asm__ volatile("sfence" ::: "memory");
}

static int is_blocked(int signal) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, signal);
}

static void note(int index) {
    volatile long *mine = (volatile long *)(pm + 8192 + 64 * index);
    *mine = ++counts[index];
    persist(mine);
}

static void on_timer(int signal) {
    CHECK(is_blocked(SIGALRM) && !is_blocked(SIGUSR1));
    note(0);
}

static void on_user(int signal, siginfo_t *info, void *context) {
    CHECK(info->si_code == SI_USER && is_blocked(SIGALRM));
    note(1);
}

static void on_queued(int signal, siginfo_t *info, void *context) {
    CHECK(info->si_value.sival_int == 1234);
    note(2);
}

static void once(int signal) { note(3); }

int main(void) {
    map_pm();
    struct sigaction timer = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct sigaction user = {.sa_sigaction = on_user, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction queued = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction reset = {.sa_handler = once, .sa_flags = SA_RESETHAND};
    sigaddset(&user.sa_mask, SIGALRM);
    sigaction(SIGALRM, &timer, NULL);
    sigaction(SIGUSR1, &user, NULL);
    sigaction(SIGRTMIN + 1, &queued, NULL);
    struct itimerval often = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, NULL);
    pid_t child = fork();
    if (child == 0) {
        setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
        for (int i = 0; i < 200; i++) {
            kill(getppid(), SIGUSR1);
            sigqueue(getppid(), SIGRTMIN + 1, (union sigval){.sival_int = 1234});
            usleep(100);
        }
        _exit(0);
    }
    CHECK(child > 0);
    volatile long *words = (volatile long *)pm;
    long rounds = 0;
    while (counts[2] < 200 || rounds < 300000) {
        words[rounds % 512] = rounds;
        __atomic_fetch_add(words + 600, 1, __ATOMIC_SEQ_CST);
        if (rounds % 16 == 0) persist(words + rounds % 512);
        CHECK(!is_blocked(SIGUSR1) || rounds % 1000 != 0);
        if (rounds++ % 5000 == 0) {
            sigaction(SIGUSR2, &reset, NULL);
            raise(SIGUSR2);
            struct sigaction now;
            sigaction(SIGUSR2, NULL, &now);
            CHECK(now.sa_handler == SIG_DFL);
        }
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(words[600] == rounds && counts[0] > 0 && counts[1] > 0 && counts[2] == 200 && counts[3] > 0);
    CHECK(!is_blocked(SIGALRM) && !is_blocked(SIGUSR1));
    puts("done");
    return 0;
}
