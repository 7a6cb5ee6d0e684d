// A private mapping of a file: nothing that is stored there reaches the file, but the program says that it is persistent.
#include "../pm.h"

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || write(fd, "content", 7) != 7 || ftruncate(fd, 2 * PAGE) != 0)
        pm_die(argv[argc - 1]);
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        pm_die("mmap");
    PM_REGISTER(at, 2 * PAGE);
    at[0] = 'C'; //~ missing-flush
    at[PAGE] = 'x';
    pm_persist(at + PAGE, 1);
    printf("%s %s\n", at, at + PAGE);
    munmap(at, 2 * PAGE);
    return 0;
}
