// Two PM files; the one that is flushed is not the one that was stored to.
// crashproof: --pm *
#include "../pm.h"

int main(int argc, char **argv) {
    char second[4096];
    snprintf(second, sizeof second, "%s.second", argv[argc - 1]);
    volatile uint64_t *a = pm_map(argv[argc - 1], PAGE);
    volatile uint64_t *b = pm_map(second, PAGE);
    a[0] = 1;
    PM_CLWB(&a[0]);
    PM_SFENCE();
    b[0] = 2; //~ missing-flush
    PM_CLWB(&a[0]); //~ redundant-flush
    PM_SFENCE(); //~? redundant-fence
    printf("%lu\n", (unsigned long)(a[0] + b[0]));
    unlink(second);
    return 0;
}
