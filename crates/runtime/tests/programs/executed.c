// What a program blocks and ignores of the four signals, and what is pending, is what the program that it executes starts with: one with
// the runtime (this one again), and one without it. In every way to execute one.
#include "pm.h"
#include "signal_state.h"
#include <spawn.h>

extern char **environ;
static char *programs[] = {"./executed", "./static_child"};

static void block(int how, int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    sigaddset(&set, second);
    CHECK(sigprocmask(how, &set, NULL) == 0);
}

static void done(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
    else printf("status %d\n", WEXITSTATUS(status));
    fflush(stdout);
}

static void execute(int way, char *program) {
    char *arguments[] = {program, "state", NULL};
    char *empty[] = {NULL};
    switch (way) {
    case 0: execv(program, arguments); break;
    case 1: execve(program, arguments, empty); break;
    case 2: execvp(program, arguments); break;
    case 3: execl(program, program, "state", NULL); break;
    case 4: execle(program, program, "state", "2", "3", "4", "5", "6", "7", "8", NULL, empty); break;
    case 5: execlp(program, program, "state", "2", "3", "4", "5", "6", "7", "8", NULL); break;
    case 6: fexecve(open(program, O_RDONLY), arguments, environ); break;
    }
    _exit(99);
}

static void set_up(int which) {
    if (which & 1) CHECK(signal(SIGTRAP, SIG_IGN) != SIG_ERR);
    if (which & 2) block(SIG_BLOCK, SIGSEGV, SIGUSR1);
    if (which & 4) {
        block(SIG_BLOCK, SIGBUS, SIGSYS);
        kill(getpid(), SIGBUS);
        raise(SIGSYS);
    }
}

static void handler(int signal) { (void)signal; }

int main(int argc, char **argv) {
    if (argc > 1) {
        if (!strcmp(argv[1], "trap")) raise(SIGTRAP);
        else if (!strcmp(argv[1], "unblock")) block(SIG_UNBLOCK, SIGSEGV, SIGBUS);
        print_signal_state("executed");
        return argc == 10 ? argv[9][0] - '0' : argc;
    }
    map_pm();
    for (int program = 0; program < 2; program++)
        for (int which = 0; which < 8; which++)
            for (int way = 0; way < 7; way++) {
                pid_t child = fork();
                if (child == 0) {
                    set_up(which);
                    store();
                    execute(way, programs[program]);
                }
                done(child);
            }

    // With a handler, which is not handed on; executed in vain before.
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, handler);
        set_up(7);
        signal(SIGSYS, handler);
        execl("/nowhere/at/all", "x", NULL);
        CHECK(errno == ENOENT);
        store();
        print_signal_state("after a failure");
        set_up(4);
        store();
        execute(0, programs[0]);
    }
    done(child);

    // It survives what it ignores; it dies of what was pending when it unblocks that.
    child = fork();
    if (child == 0) {
        set_up(1);
        execl(programs[0], programs[0], "trap", NULL);
    }
    done(child);
    child = fork();
    if (child == 0) {
        set_up(2);
        raise(SIGSEGV);
        execl(programs[0], programs[0], "unblock", NULL);
    }
    done(child);

    // A child of vfork has its own mask and dispositions, its parent keeps its own.
    signal(SIGTRAP, SIG_IGN);
    block(SIG_BLOCK, SIGSEGV, SIGUSR1);
    for (int program = 0; program < 2; program++) {
        child = vfork();
        if (child == 0) {
            signal(SIGTRAP, SIG_DFL);
            signal(SIGSYS, SIG_IGN);
            block(SIG_UNBLOCK, SIGSEGV, SIGUSR1);
            block(SIG_BLOCK, SIGBUS, SIGBUS);
            execv(programs[program], (char *[]){programs[program], "state", NULL});
            _exit(99);
        }
        done(child);
        print_signal_state("parent");
        child = vfork();
        if (child == 0) {
            execv(programs[program], (char *[]){programs[program], "state", NULL});
            _exit(99);
        }
        done(child);

        // posix_spawn, with attributes and without.
        posix_spawnattr_t attributes;
        sigset_t set;
        char *arguments[] = {programs[program], "state", NULL};
        CHECK(posix_spawn(&child, programs[program], NULL, NULL, arguments, environ) == 0);
        done(child);
        posix_spawnattr_init(&attributes);
        sigemptyset(&set);
        sigaddset(&set, SIGBUS);
        posix_spawnattr_setsigmask(&attributes, &set);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        CHECK(posix_spawn(&child, programs[program], NULL, &attributes, arguments, environ) == 0);
        done(child);
        sigemptyset(&set);
        sigaddset(&set, SIGTRAP);
        posix_spawnattr_setsigdefault(&attributes, &set);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        CHECK(posix_spawnp(&child, programs[program], NULL, &attributes, arguments, environ) == 0);
        done(child);
        store();
        print_signal_state("parent");
    }
    return 0;
}
