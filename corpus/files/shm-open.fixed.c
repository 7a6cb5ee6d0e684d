// As shm-open.c, with the data flushed.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char name[64];
    snprintf(name, sizeof name, "/crashproof-corpus-%d", (int)getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(name);
    volatile uint64_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shm_unlink(name);
    shared[0] = 1;
    shared[8] = 2;
    data[0] = 7;
    pm_persist((void *)data, sizeof *data);
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
