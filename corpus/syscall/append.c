// Writes that append: with O_APPEND and with RWF_APPEND the kernel disregards the offset that it is given.
#include "../pm.h"
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define NOAPPEND 0x20

int main(int argc, char **argv) {
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    int appending = open(argv[argc - 1], O_RDWR | O_APPEND), plain = open(argv[argc - 1], O_RDWR);
    struct iovec two[] = {{"two", 3}, {"parts", 5}}, one[] = {{"one", 3}};
    if (pwrite(appending, "pwrite", 6, 64) != 6 || pwritev(appending, two, 2, 128) != 8)
        pm_die("pwrite");
    if (pwritev2(plain, one, 1, 192, RWF_APPEND) != 3 || pwritev2(plain, two, 2, -1, RWF_APPEND) != 8)
        pm_die("pwritev2");
    // Neither moves the file position; the last one has.
    if (write(plain, "on", 2) != 2 || pwritev2(appending, one, 1, 256, 0) != 3)
        pm_die("write");
    if (syscall(SYS_pwrite64, appending, "number", 6, 320) != 6)
        pm_die("syscall");
    if (pm_raw(SYS_pwrite64, appending, (long)"raw", 3, 384, 0, 0) != 3 ||
        pm_raw(SYS_pwritev2, plain, (long)one, 1, 448, 0, RWF_APPEND) != 3)
        pm_die("raw");
    // Newer kernels can be told to take the offset all the same.
    if (pwritev2(appending, one, 1, 512, NOAPPEND) != 3 && errno != EOPNOTSUPP)
        pm_die("RWF_NOAPPEND");
    pm[0] = 1; //~ missing-flush
    char tail[64];
    ssize_t got = pread(plain, tail, sizeof tail, PAGE);
    printf("%d %zd %.*s\n", pm[0], got, (int)got, tail);
    return 0;
}
