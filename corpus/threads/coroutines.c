// Coroutines on small stacks of their own store to PM in turns.
#include "../pm.h"
#include <ucontext.h>

static ucontext_t scheduler, routines[3];
static volatile uint64_t *pm;

static void work(int id) {
    for (int i = 0; i < 5; i++) {
        pm[id * 8] += (uint64_t)id + 1; //~ missing-flush
        swapcontext(&routines[id], &scheduler);
    }
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    static char stacks[3][16384];
    for (int id = 0; id < 3; id++) {
        getcontext(&routines[id]);
        routines[id].uc_stack.ss_sp = stacks[id];
        routines[id].uc_stack.ss_size = sizeof stacks[id];
        routines[id].uc_link = &scheduler;
        makecontext(&routines[id], (void (*)(void))work, 1, id);
    }
    for (int i = 0; i < 6; i++)
        for (int id = 0; id < 3; id++)
            swapcontext(&scheduler, &routines[id]);
    printf("%lu %lu %lu\n", (unsigned long)pm[0], (unsigned long)pm[8], (unsigned long)pm[16]);
    return 0;
}
