// Processes started in every way, with and without the runtime.
#include "pm.h"
#include <spawn.h>

extern char **environ;

static int exit_of(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static volatile int calls;

static void count(int signal) {
    calls++;
    store();
}

int main(int argc, char **argv) {
    map_pm();
    if (argc > 1) {
        sigset_t mask;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        CHECK(sigismember(&mask, SIGSEGV) && sigismember(&mask, SIGTRAP) && sigismember(&mask, SIGINT));
        store();
        return 5;
    }
    CHECK(system("/bin/echo by system") == 0);
    FILE *stream = popen("echo by popen", "r");
    char line[100];
    CHECK(fgets(line, sizeof line, stream) && !strcmp(line, "by popen\n") && pclose(stream) == 0);

    pid_t child;
    char *none[] = {"./static_child", NULL};
    CHECK(posix_spawn(&child, "./static_child", NULL, NULL, none, environ) == 0 && exit_of(child) == 4);

    // What a vfork child does to its signals is not done to its parent's.
    struct sigaction action = {.sa_handler = count}, known;
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
    child = vfork();
    if (!child) {
        signal(SIGTRAP, SIG_DFL);
        signal(SIGUSR2, SIG_DFL);
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        store();
        execl("./static_child", "./static_child", NULL);
        _exit(1);
    }
    CHECK(exit_of(child) == 4);
    CHECK(sigaction(SIGTRAP, NULL, &known) == 0 && known.sa_handler == count);
    raise(SIGUSR2);
    raise(SIGTRAP);
    CHECK(calls == 2);

    child = fork();
    if (!child) {
        char *empty[] = {NULL};
        execle("/bin/echo", "echo", "without an environment", NULL, empty);
        _exit(1);
    }
    CHECK(exit_of(child) == 0);

    // The mask that a child is started with.
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &all);
    char *again[] = {argv[0], "child", NULL};
    CHECK(posix_spawn(&child, argv[0], NULL, &attributes, again, environ) == 0 && exit_of(child) == 5);
    store();

    // Another environment, or another preload, does not lose the runtime.
    char *cleared[] = {"A=1", NULL}, *preloading[] = {"LD_PRELOAD=libm.so.6", "B=2", NULL};
    char *list[] = {"/bin/sh", "-c", "echo $A$B; case $LD_PRELOAD in '') exit 7;; libm*) exit 8;; *runtime*) exit 9;; esac", NULL};
    int with_runtime = getenv("CRASHPROOF_SESSION") || getenv("CRASHPROOF_RECOVERY");
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, list, cleared) == 0 && exit_of(child) == (with_runtime ? 9 : 7));
    CHECK(posix_spawnp(&child, "sh", NULL, NULL, list, preloading) == 0 && exit_of(child) == (with_runtime ? 9 : 8));
    child = fork();
    if (!child) _exit(execve("/bin/sh", list, cleared));
    CHECK(exit_of(child) == (with_runtime ? 9 : 7));
    puts("done");
    return 0;
}
