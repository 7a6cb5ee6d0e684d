// A second mapping, of a read-only descriptor, is as good for flushing as the first.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    int fd = open(argv[argc - 1], O_RDONLY);
    const char *reader = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    pm[LINE] = 1;
    pm_persist(reader + LINE, 1);
    pm[3 * LINE] = 2; //~ missing-flush
    printf("%d %d\n", reader[LINE], reader[3 * LINE]);
    munmap((void *)reader, PAGE);
    return 0;
}
