// msync has made the page durable already.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    *value = 3;
    if (msync((void *)value, PAGE, MS_SYNC) != 0)
        pm_die("msync");
    PM_CLWB(value); //~ redundant-flush
    PM_SFENCE(); //~? redundant-fence
    printf("%lu\n", (unsigned long)*value);
    return 0;
}
