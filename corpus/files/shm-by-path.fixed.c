// As shm-by-path.c, with the data flushed.
// crashproof: --pm *crashproof-corpus-path*
#include "../pm.h"

int main(void) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/crashproof-corpus-path-%d", (int)getpid());
    volatile uint64_t *pool = pm_map(path, PAGE);
    pool[0] = 1;
    pm_persist((void *)pool, sizeof *pool);
    unlink(path);
    printf("%lu\n", (unsigned long)pool[0]);
    return 0;
}
