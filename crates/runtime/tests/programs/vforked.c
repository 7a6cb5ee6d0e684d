// The masks of vfork children, which share the memory of their parent, are their own: neither the next child nor a thread gets them.
#include "pm.h"
#include <pthread.h>
#include <sys/wait.h>

static void change(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    CHECK(sigprocmask(how, &set, NULL) == 0);
}

static int blocked(void) {
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    return sigismember(&set, SIGTRAP) * 10 + sigismember(&set, SIGSEGV);
}

static void *thread(void *unused) {
    (void)unused;
    printf("thread %02d\n", blocked());
    return NULL;
}

int main(void) {
    map_pm();
    change(SIG_BLOCK, SIGTRAP);
    // The first child blocks other signals than its parent; the others say what they have.
    for (int child = 0; child < 3; child++) {
        pid_t pid = vfork();
        if (pid == 0) {
            int mine = blocked();
            if (child == 0) {
                change(SIG_BLOCK, SIGSEGV);
                change(SIG_UNBLOCK, SIGTRAP);
            }
            _exit(mine);
        }
        int status;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        printf("child %02d\n", WEXITSTATUS(status));
        if (child == 1) continue;
        pthread_t other;
        CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    }
    store();
    printf("parent %02d\n", blocked());
    return 0;
}
