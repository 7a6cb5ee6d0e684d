// A timer's signals store to PM while the main program does so too.
#include "../pm.h"
#include <signal.h>
#include <sys/time.h>

static volatile uint64_t *pm;
static volatile sig_atomic_t ticks;

static void on_timer(int signal) {
    (void)signal;
    if (ticks == 20)
        return;
    ticks++;
    pm[0] += 2;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    if (ticks == 20)
        pm[8] = 1; //~ missing-flush
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    struct sigaction action = {0};
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (uint64_t i = 0; ticks < 20 || i < 100; i++)
        pm[16 + i % 8] = i % 8;
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    PM_CLWB(&pm[16]);
    PM_SFENCE();
    printf("%lu %lu\n", (unsigned long)pm[0], (unsigned long)pm[23]);
    return 0;
}
