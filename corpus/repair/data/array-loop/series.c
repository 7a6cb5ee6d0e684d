// repair: flush
// A loop over lines; one fence after it.
#include "persist.h"
#include "pool.h"

static void clear(uint32_t *series, int from, int to) {
    for (int i = from; i < to; i++) {
        series[i] = i * 2; //~ missing-flush
    }
    pm_fence();
}

int main(int argc, char **argv) {
    uint32_t *series = pool_open(argv[argc - 1], 4096);
    clear(series, 10, 60);
    printf("%u %u\n", series[10], series[59]);
    return 0;
}
