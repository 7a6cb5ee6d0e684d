// Anonymous mappings, private and shared, that the program registers.
#include "../pm.h"
#include <sys/wait.h>

static uint64_t *map(int kind) {
    void *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        pm_die("mmap");
    return at;
}

int main(void) {
    uint64_t *own = map(MAP_PRIVATE), *common = map(MAP_SHARED);
    own[600] = 1;
    PM_REGISTER(own, 4 * PAGE);
    PM_REGISTER(common, 4 * PAGE);
    own[600] = 2;
    pm_persist(own + 600, 8);
    own[700] = 3;
    pm_persist(own + 700, 8);
    // Both processes have it, and it is the same memory.
    if (fork() == 0) {
        common[8] = 4;
        pm_persist(common + 8, 8);
        common[80] = 5;
        pm_persist(common + 80, 8);
        _exit(0);
    }
    wait(NULL);
    printf("%lu %lu %lu %lu\n", own[600], own[700], common[8], common[80]);
    munmap(own, 4 * PAGE);
    own = mmap(own, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    own[600] = 6;
    return 0;
}
