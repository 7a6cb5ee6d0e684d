// --pm makes a file PM, whatever made it.
// crashproof: --pm */crashproof-corpus-selected*
#include "../pm.h"

int main(void) {
    char name[64];
    snprintf(name, sizeof name, "/crashproof-corpus-selected-%d", (int)getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(name);
    volatile uint64_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shm_unlink(name);
    shared[0] = 1; //~ missing-flush
    printf("%lu\n", (unsigned long)shared[0]);
    return 0;
}
