// A file without a name holds nothing that a restart could find.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096];
    snprintf(path, sizeof path, "%s.unnamed", argv[argc - 1]);
    volatile uint64_t *early = pm_map(path, PAGE);
    unlink(path);
    early[0] = 1;
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(path);
    unlink(path);
    volatile uint64_t *late = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    late[0] = 2;
    data[0] = 7; //~ missing-flush
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
