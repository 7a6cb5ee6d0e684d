// clflush has done the work; the clwb behind it finds a clean line.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 3;
    PM_CLFLUSH(value);
    PM_CLWB(value); //~ redundant-flush
    PM_SFENCE(); //~? redundant-fence
    printf("%lu\n", (unsigned long)*value);
    return 0;
}
