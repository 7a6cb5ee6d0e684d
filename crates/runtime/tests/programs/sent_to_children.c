// SIGSEGV, SIGBUS, SIGTRAP and SIGSYS sent to a child as soon as there is one: while libc and the runtime are still in the middle of the fork,
// between fork and exec, and while the child's program is being loaded. Each ends its child.
#include "pm.h"
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>

#define TIMES 12

extern char **environ;
static const int sent[] = {SIGSEGV, SIGBUS, SIGTRAP, SIGSYS};
static char *waits[] = {"sleep", "20", NULL};

static pid_t by_fork(void) {
    pid_t child = fork();
    if (child == 0) {
        // Should the signal be lost.
        alarm(20);
        for (;;) store();
    }
    return child;
}

static pid_t by_fork_exec(void) {
    pid_t child = fork();
    if (child == 0) {
        execvp(waits[0], waits);
        _exit(1);
    }
    return child;
}

static pid_t by_vfork_exec(void) {
    pid_t child = vfork();
    if (child == 0) {
        execvp(waits[0], waits);
        _exit(1);
    }
    return child;
}

static pid_t by_spawn(void) {
    pid_t child;
    CHECK(posix_spawnp(&child, waits[0], NULL, NULL, waits, environ) == 0);
    return child;
}

static int pausing(void *argument) {
    alarm(20);
    for (;;) pause();
    return 0;
}

static pid_t by_clone(void) {
    static char stack[65536] __attribute__((aligned(16)));
    return clone(pausing, stack + sizeof stack, SIGCHLD, NULL);
}

static pid_t by_raw_clone(void) {
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        syscall(SYS_alarm, 20);
        for (;;) syscall(SYS_pause);
    }
    return child;
}

static void ends(pid_t child, int signal, const char *how) {
    int status;
    CHECK(child > 0 && kill(child, signal) == 0 && waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != signal) printf("%s, signal %d: status %#x\n", how, signal, status);
}

// Sent to the parent alone, while it forks: the child must not get it.
static void on_signal(int signal) {
    pm[64]++;
}

static void to_the_parent(void) {
    for (int which = 0; which < 4; which++) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(sent[which], &action, NULL);
        pid_t parent = getpid(), sender = fork();
        if (sender == 0) {
            for (int i = 0; i < 200; i++) kill(parent, sent[which]);
            _exit(0);
        }
        for (int i = 0; i < TIMES; i++) {
            pid_t child = fork();
            if (child == 0) {
                signal(sent[which], SIG_DFL);
                store();
                _exit(7);
            }
            int status;
            while (waitpid(child, &status, 0) == -1) CHECK(errno == EINTR);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        }
        int status;
        while (waitpid(sender, &status, 0) == -1) CHECK(errno == EINTR);
        signal(sent[which], SIG_DFL);
    }
}

int main(void) {
    map_pm();
    store();
    for (int which = 0; which < 4; which++)
        for (int i = 0; i < TIMES; i++) {
            ends(by_fork(), sent[which], "fork");
            ends(by_fork_exec(), sent[which], "fork and exec");
            ends(by_vfork_exec(), sent[which], "vfork and exec");
            ends(by_spawn(), sent[which], "posix_spawn");
            ends(by_clone(), sent[which], "clone");
            ends(by_raw_clone(), sent[which], "raw clone");
        }
    to_the_parent();
    puts("done");
    return 0;
}
