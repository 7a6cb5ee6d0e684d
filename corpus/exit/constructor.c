// A constructor function stores before main runs.
#include "../pm.h"

static volatile uint64_t *pm;

__attribute__((constructor)) static void open_file(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 3; //~ missing-flush
}

int main(void) {
    pm[8] = 1;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[8]);
    return 0;
}
