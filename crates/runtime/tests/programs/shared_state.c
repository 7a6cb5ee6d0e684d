// What the runtime keeps for a thread must be its own: a task that shares its maker's thread-local storage stores while the maker does,
// and a thread that stores may be cancelled at any instruction.
#include "pm.h"
#include <pthread.h>
#include <sched.h>

#define ROUNDS 5000

static void count(int index) {
    volatile long *mine = (volatile long *)(pm + 64 * index);
    for (long i = 1; i <= ROUNDS; i++) {
        *mine = i;
        mine[1] = 3 * i;
        __asm__ volatile("clflush %0" : "+m"(*mine));
        __asm__ volatile("sfence" ::: "memory");
    }
    CHECK(mine[0] == ROUNDS && mine[1] == 3 * ROUNDS);
}

static int task(void *unused) {
    count(1);
    return 7;
}

static void *endless(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (volatile long *mine = (volatile long *)(pm + 64 * 2);;)
        ++*mine;
}

int main(void) {
    map_pm();
    static char stack[1 << 16] __attribute__((aligned(16)));
    int child = clone(task, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK(child > 0);
    count(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, endless, NULL) == 0);
        usleep(1000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    puts("done");
}
