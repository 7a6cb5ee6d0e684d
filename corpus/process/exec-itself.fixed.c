// The program starts itself over; what the first image stored is pending when the second replaces it.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    if (pm[0] == 0) {
        pm[0] = 1;
        pm_persist((void *)&pm[0], 8);
        printf("first\n");
        fflush(stdout);
        execv("/proc/self/exe", argv);
        pm_die("execv");
    }
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    printf("second %lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
