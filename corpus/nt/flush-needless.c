// A flush after a fenced non-temporal store does nothing.
#include "../pm.h"

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    PM_NTSTORE(pm, (uint64_t)5);
    PM_SFENCE();
    PM_CLWB(pm); //~ redundant-flush
    PM_SFENCE(); //~? redundant-fence
    printf("%lu\n", *pm);
    return 0;
}
