// As memfd.c, with the data flushed.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    int fd = memfd_create("shared", 0);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die("memfd_create");
    volatile uint64_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shared[0] = 1;
    data[0] = 7;
    pm_persist((void *)data, sizeof *data);
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
