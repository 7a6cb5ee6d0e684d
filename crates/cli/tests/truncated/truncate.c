/* Truncates a mapped PM file of which everything was compared before, in the way that is asked for, and gives it its size back. */
#include "../../../../corpus/pm.h"
#include <errno.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

static long raw(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv) {
    const char *how = argv[argc - 1];
    char *mapped = NULL;
    int fd = open("pool", O_RDWR | O_CREAT, 0600), again = -1;
    if (fd < 0 || ftruncate(fd, 4 * PAGE) != 0)
        pm_die("pool");
    for (int round = 0; round < 2; round++) {
        char *pm = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (pm == MAP_FAILED)
            pm_die("mmap");
        mapped = pm;
        if (round == 1)
            break;
        for (int page = 0; page < 4; page++) {
            pm[page * PAGE] = (char)(page + 1);
            pm_persist(pm + page * PAGE, 1);
        }
        munmap(pm, 4 * PAGE);
    }
    if (strcmp(how, "open") == 0)
        again = open("pool", O_RDWR | O_TRUNC);
    else if (strcmp(how, "openat") == 0)
        again = openat(AT_FDCWD, "pool", O_WRONLY | O_TRUNC);
    else if (strcmp(how, "creat") == 0)
        again = creat("pool", 0600);
    else if (strcmp(how, "fopen") == 0)
        again = fileno(fopen("pool", "w"));
    else if (strcmp(how, "raw-open") == 0)
        again = (int)raw(SYS_open, (long)"pool", O_RDWR | O_TRUNC, 0, 0);
    else if (strcmp(how, "raw-openat") == 0)
        again = (int)raw(SYS_openat, AT_FDCWD, (long)"pool", O_RDWR | O_TRUNC, 0);
    else if (strcmp(how, "raw-creat") == 0)
        again = (int)raw(SYS_creat, (long)"pool", 0600, 0, 0);
    else if (strcmp(how, "raw-openat2") == 0 || strcmp(how, "number-openat2") == 0) {
        struct open_how asked = {.flags = O_RDWR | O_TRUNC};
        again = *how == 'r' ? (int)raw(SYS_openat2, AT_FDCWD, (long)"pool", (long)&asked, sizeof asked)
                            : (int)syscall(SYS_openat2, AT_FDCWD, "pool", &asked, sizeof asked);
    } else if (strcmp(how, "number-openat") == 0)
        again = (int)syscall(SYS_openat, AT_FDCWD, "pool", O_RDWR | O_TRUNC, 0);
    else if (strcmp(how, "number-creat") == 0)
        again = (int)syscall(SYS_creat, "pool", 0600);
    else if (strcmp(how, "not") == 0)
        again = open("pool", O_RDWR);
    else if (strcmp(how, "path") == 0)
        again = open("pool", O_PATH | O_TRUNC);
    else if (strcmp(how, "stdio") == 0) {
        /* What stdio writes to a file that is not mapped any more is not recorded. */
        munmap(mapped, 4 * PAGE);
        FILE *file = fopen("pool", "w");
        return file == NULL || fputs("abc", file) < 0 || fclose(file) != 0;
    }
    else if (strcmp(how, "collapse") == 0 || strcmp(how, "insert") == 0) {
        int mode = *how == 'c' ? FALLOC_FL_COLLAPSE_RANGE : FALLOC_FL_INSERT_RANGE;
        if (fallocate(fd, mode, PAGE, PAGE) != 0)
            return errno == EOPNOTSUPP ? 77 : 1;
        return 0;
    }
    struct stat status;
    if (again < 0 || fstat(again, &status) != 0)
        pm_die(how);
    printf("%ld bytes\n", (long)status.st_size);
    if (ftruncate(fd, 4 * PAGE) != 0)
        pm_die("ftruncate");
    return 0;
}
