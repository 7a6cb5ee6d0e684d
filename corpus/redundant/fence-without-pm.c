// A fence with nothing of PM before it, after a right update.
#include "../pm.h"

static volatile int ready;

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 1;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    ready = 1;
    PM_SFENCE(); //~ redundant-fence
    printf("%d\n", ready);
    return 0;
}
