// A file that is called a lock and is locked holds no data. One that is only called so does.
#include "../pm.h"
#include <sys/file.h>

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096], other[4096];
    snprintf(path, sizeof path, "%s.lock", argv[argc - 1]);
    snprintf(other, sizeof other, "%s.lck", argv[argc - 1]);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 || ftruncate(fd, PAGE) != 0)
        pm_die(path);
    volatile uint64_t *readers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    readers[0] = 1;
    volatile uint64_t *mine = pm_map(other, PAGE);
    mine[0] = 2; //~ missing-flush
    data[0] = 7; //~ missing-flush
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
