// Four processes increment a counter in PM at once.
#include "../pm.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            for (int round = 0; round < 100; round++)
                __asm__ volatile("lock incq %0" : "+m"(pm[0]) : : "memory");
            pm[8 + i] = (uint64_t)i; //~ missing-flush x4
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    pm_persist((void *)&pm[0], 8);
    printf("%lu %lu\n", (unsigned long)pm[0], (unsigned long)pm[11]);
    return 0;
}
