// A file that the program opens by its path in /dev/shm is data. (It is deleted here so that nothing is left: --pm shows it.)
// crashproof: --pm *crashproof-corpus-path*
#include "../pm.h"

int main(void) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/crashproof-corpus-path-%d", (int)getpid());
    volatile uint64_t *pool = pm_map(path, PAGE);
    pool[0] = 1; //~ missing-flush
    unlink(path);
    printf("%lu\n", (unsigned long)pool[0]);
    return 0;
}
