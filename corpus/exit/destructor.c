// A destructor function marks the file as closed and forgets to flush.
#include "../pm.h"

static volatile uint64_t *pm;

__attribute__((destructor)) static void close_file(void) {
    pm[0] = 3; //~ missing-flush
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    pm[8] = 1;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[8]);
    return 0;
}
