// Flushing ordinary memory is no matter for PM; the fence for it alone has nothing of PM to order.
#include "../pm.h"

static volatile uint64_t scratch[16];

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    scratch[8] = 1;
    PM_CLWB(&scratch[8]);
    *value = scratch[8] + 1;
    PM_CLWB(value);
    PM_SFENCE();
    printf("%lu\n", (unsigned long)*value);
    return 0;
}
