// An aligned store to an unaligned address in PM faults, and stores nothing.
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;

static void on_segv(int signal) {
    siglongjmp(back, signal);
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    signal(SIGSEGV, on_segv);
    int first = sigsetjmp(back, 1);
    if (first == 0)
        __asm__ volatile("movaps %%xmm0, 4(%0)" : : "r"(pm) : "memory");
    int second = sigsetjmp(back, 1);
    if (second == 0)
        __asm__ volatile("lock cmpxchg16b 72(%0)" : : "r"(pm), "a"(0L), "d"(0L), "b"(1L), "c"(1L) : "memory");
    pm[128] = 1; //~ missing-flush
    printf("%d %d\n", first, second);
    pm_print("nothing", pm, 96);
    return 0;
}
